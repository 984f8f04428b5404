import type { CheckOf } from "./check.ts";

const MIB = 1024 * 1024;
/** The agent at rest and some commands; less, and the kernel will look for something to kill. */
const ENOUGH_MEMORY_BYTES = 128 * MIB;
/** 256 commands take up to four descriptors each, and files and connections come on top. */
const ENOUGH_OPEN_FILES = 2048;

function mebibytes(bytes: number): string {
  return `${Math.floor(bytes / MIB)} MiB`;
}

/** Memory that the agent shares with the workload. */
export const memory: CheckOf = ({ memory: { totalBytes, limitBytes } }) => {
  const ok = (limitBytes ?? totalBytes) >= ENOUGH_MEMORY_BYTES;
  const limit = limitBytes === undefined ? "" : `, limited to ${mebibytes(limitBytes)}`;
  return {
    name: "memory",
    ok,
    found: `${mebibytes(totalBytes)}${limit}`,
    meaning: ok ? "enough for the agent" : "the agent alone wants 128 MiB under load; raise the limit",
  };
};

/** Open files of the agent. Children get the limit that the agent's entrypoint was started with. */
export const openFiles: CheckOf = ({ openFiles: limit }) => ({
  name: "open files",
  ok: limit >= ENOUGH_OPEN_FILES,
  found: String(limit),
  meaning:
    limit >= ENOUGH_OPEN_FILES
      ? "enough for 256 commands at once"
      : "fewer than 256 commands at once; raise the hard RLIMIT_NOFILE to 2048",
});
