import type { CheckOf } from "./check.ts";

/** Capabilities that the agent uses (capabilities(7)), and what does not work without. */
const CAPABILITIES: readonly (readonly [name: string, bit: number, without: string])[] = [
  ["CAP_CHOWN", 0, "WriteFile cannot set owners"],
  ["CAP_DAC_OVERRIDE", 1, "files of other users may be out of reach"],
  ["CAP_FOWNER", 3, "WriteFile cannot set the mode of others' files"],
  ["CAP_KILL", 5, "commands of other users cannot be ended"],
  ["CAP_SETGID", 6, "commands cannot run as another user"],
  ["CAP_SETUID", 7, "commands cannot run as another user"],
  ["CAP_SYS_ADMIN", 21, "entropy is not credited, and cgroups need a mount"],
  ["CAP_SYS_NICE", 23, "a busy workload slows the agent down"],
  ["CAP_SYS_TIME", 25, "the clock is not stepped"],
];

/** Who the agent is. */
export const account: CheckOf = ({ uid, isInit }) => ({
  name: "user",
  ok: uid === 0,
  found: `${uid}${isInit ? ", PID 1" : ""}`,
  meaning: uid === 0 ? "the agent has the guest's own root" : "commands run as this user, and files are reached as it",
});

/** What the agent may do. */
export const capabilities: CheckOf = ({ capabilities: held }) => {
  if (held === undefined) {
    return { name: "capabilities", ok: false, found: "not told", meaning: "the kernel does not say what is permitted" };
  }
  const missing = CAPABILITIES.filter(([, bit]) => ((held >> BigInt(bit)) & 1n) === 0n);
  return {
    name: "capabilities",
    ok: missing.length === 0,
    found: missing.length === 0 ? "all that matter" : `without ${missing.map(([name]) => name).join(" ")}`,
    meaning:
      missing.length === 0
        ? "nothing is refused for want of one"
        : [...new Set(missing.map(([, , without]) => without))].join("; "),
  };
};

/** A filter of system calls. */
export const seccomp: CheckOf = ({ hasSeccompFilter }) => ({
  name: "seccomp",
  ok: true,
  found: hasSeccompFilter ? "a filter" : "no filter",
  meaning: hasSeccompFilter ? "what it refuses shows in the other lines" : "no system call is kept back",
});
