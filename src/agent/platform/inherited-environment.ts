import { closeSync, readFileSync } from "node:fs";
import type { Addon } from "../native/index.ts";
import type { InheritedEnvironment } from "../session/index.ts";

/** Variables that the launcher sets for the agent (src/agent/native/launcher/environment.c). */
const ENVIRON_FD = "GUEST_AGENT_ENVIRON_FD";
const CHANNEL_FD = "GUEST_AGENT_CHANNEL_FD";
const CONTAINER_OOM_SCORE_ADJ = "GUEST_AGENT_CONTAINER_OOM_SCORE_ADJ";

export interface Inheritance {
  /** The environment of the entrypoint, unmodified: raw entries in their order. */
  readonly entries: InheritedEnvironment;
  /** The agent's end of the socket to the launcher; undefined if the agent was started without the launcher. */
  readonly channelFd: number | undefined;
  /**
   * oom_score_adj (proc(5)) before the launcher lowered it for itself and the agent; undefined if the launcher did not
   * lower it.
   */
  readonly containerOomScoreAdj: number | undefined;
}

/**
 * Reads the inherited environment: from the launcher if there is a launcher, otherwise from this process. Must be
 * called only once. Deletes from `environment` the variables whose names are in `secrets`.
 */
export function takeInheritance(
  addon: Pick<Addon, "environ">,
  environment: NodeJS.ProcessEnv,
  secrets: readonly string[],
): Inheritance {
  const environFd = descriptor(environment, ENVIRON_FD);
  const channelFd = descriptor(environment, CHANNEL_FD);
  const score = environment[CONTAINER_OOM_SCORE_ADJ];
  delete environment[CONTAINER_OOM_SCORE_ADJ];
  const entries = environFd === undefined ? addon.environ() : readEntries(environFd);
  for (const name of secrets) delete environment[name];
  return { entries, channelFd, containerOomScoreAdj: score === undefined ? undefined : Number(score) };
}

function descriptor(environment: NodeJS.ProcessEnv, name: string): number | undefined {
  const text = environment[name];
  if (text === undefined) return undefined;
  delete environment[name];
  const fd = Number(text);
  if (!Number.isInteger(fd) || fd < 3)
    throw new Error(`${name} is not a descriptor number; only the agent's launcher may set it: remove the variable`);
  return fd;
}

/** Reads and closes the launcher's file with the environment. Each entry ends with a NUL. */
function readEntries(fd: number): Uint8Array[] {
  const bytes = readFileSync(fd);
  closeSync(fd);
  const entries: Uint8Array[] = [];
  for (let start = 0; start < bytes.length;) {
    const nul = bytes.indexOf(0, start);
    const end = nul < 0 ? bytes.length : nul;
    entries.push(bytes.subarray(start, end));
    start = end + 1;
  }
  return entries;
}
