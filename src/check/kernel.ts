import type { CheckOf } from "./check.ts";

/** cgroup.kill came with Linux 5.14; the newest thing that the agent uses. */
const NEWEST = { major: 5, minor: 14 };

function isAtLeast(release: string, { major, minor }: typeof NEWEST): boolean {
  const [, itsMajor = 0, itsMinor = 0] = /^(\d+)\.(\d+)/.exec(release)?.map(Number) ?? [];
  return itsMajor > major || (itsMajor === major && itsMinor >= minor);
}

/** Age of the kernel. */
export const kernel: CheckOf = ({ kernel: found }) => {
  const ok = isAtLeast(found, NEWEST);
  return {
    name: "kernel",
    ok,
    found,
    meaning: ok
      ? "has everything that the agent uses"
      : "older than 5.14: a command's processes are found by walking /proc, and one that hides well is not killed",
  };
};

/** System calls of newer kernels, which filters of older container runtimes refuse. */
export const systemCalls: CheckOf = ({ systemCalls: calls }) => {
  const refused = Object.entries(calls).filter(([, errno]) => errno !== undefined);
  return {
    name: "system calls",
    ok: refused.length === 0,
    found:
      refused.length === 0 ? Object.keys(calls).join(", ") : refused.map(([name, why]) => `${name}: ${why}`).join(", "),
    meaning:
      refused.length === 0
        ? "commands are born in their cgroup and without descriptors of others"
        : "done another way, more slowly; allow them in the guest's seccomp filter, or use a newer kernel",
  };
};

/** A cgroup for each command. */
export const cgroups: CheckOf = ({ cgroups: { refusal, controllers } }) => {
  const memoryCounts = controllers.includes("memory");
  if (refusal === undefined) {
    return {
      name: "cgroups",
      ok: true,
      found: `version 2${controllers.length > 0 ? `: ${controllers.join(" ")}` : ", no controllers"}`,
      meaning: memoryCounts
        ? "each command has its own, and is killed with all it started; oom_killed is reported"
        : "each command has its own, and is killed with all it started; oom_killed is not reported",
    };
  }
  return {
    name: "cgroups",
    ok: false,
    found: refusal,
    meaning:
      "processes of a command are found by walking /proc; daemons escape. Mount cgroup2 writable, or give CAP_SYS_ADMIN",
  };
};
