import { type GuestFacts } from "../domain/index.ts";
import { wrap } from "../../shared/text.ts";

/** Verdict on one feature that the agent uses if the guest has it. */
export interface Check {
  readonly name: string;
  /** False: the agent works without the feature, but can do less. */
  readonly ok: boolean;
  /** What the guest has, or the kernel's refusal. */
  readonly found: string;
  /** The consequence and, if something is missing, what to do. */
  readonly meaning: string;
}

type CheckOf = (facts: GuestFacts) => Check;

/** Makes a row from a finding and the consequences of either verdict. */
function check(name: string, ok: boolean, found: string, whenGood: string, otherwise: string): Check {
  return { name, ok, found, meaning: ok ? whenGood : otherwise };
}

/** cgroup.kill came with Linux 5.14: the newest feature that the agent uses. */
const NEWEST = { major: 5, minor: 14 };

function isAtLeast(release: string, { major, minor }: typeof NEWEST): boolean {
  const [, itsMajor = 0, itsMinor = 0] = /^(\d+)\.(\d+)/.exec(release)?.map(Number) ?? [];
  return itsMajor > major || (itsMajor === major && itsMinor >= minor);
}

/** Capabilities that the agent uses (capabilities(7)), and what fails without them. */
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

const MIB = 1024 * 1024;
/** Enough for the idle agent and some commands. With less, the kernel soon kills processes. */
const ENOUGH_MEMORY_BYTES = 128 * MIB;
/** 256 commands take up to four descriptors each, and files and connections need more. */
const ENOUGH_OPEN_FILES = 2048;

function mebibytes(bytes: number): string {
  return `${Math.floor(bytes / MIB)} MiB`;
}

/** Every check, in the order in which they are told. */
const CHECKS: readonly CheckOf[] = [
  ({ kernel: release }) =>
    check(
      "kernel",
      isAtLeast(release, NEWEST),
      release,
      "has everything that the agent uses",
      "older than 5.14: a command's processes are found by walking /proc, and one that hides well is not killed",
    ),
  // System calls of newer kernels, which the seccomp filters of older container runtimes refuse.
  ({ systemCalls: calls }) => {
    const refused = Object.entries(calls).filter(([, errno]) => errno !== undefined);
    return check(
      "system calls",
      refused.length === 0,
      refused.length === 0 ? Object.keys(calls).join(", ") : refused.map(([name, why]) => `${name}: ${why}`).join(", "),
      "commands are born in their cgroup and without descriptors of others",
      "done another way, more slowly; allow them in the guest's seccomp filter, or use a newer kernel",
    );
  },
  // The agent's own user.
  ({ uid, isInit }) =>
    check(
      "user",
      uid === 0,
      `${uid}${isInit ? ", PID 1" : ""}`,
      "the agent has the guest's own root",
      "commands run as this user, and files are reached as it",
    ),
  ({ capabilities: held }) => {
    const missing = CAPABILITIES.filter(([, bit]) => (((held ?? 0n) >> BigInt(bit)) & 1n) === 0n);
    return held === undefined
      ? { name: "capabilities", ok: false, found: "not told", meaning: "the kernel does not say what is permitted" }
      : check(
          "capabilities",
          missing.length === 0,
          missing.length === 0 ? "all that matter" : `without ${missing.map(([name]) => name).join(" ")}`,
          "nothing is refused for want of one",
          [...new Set(missing.map(([, , without]) => without))].join("; "),
        );
  },
  ({ hasSeccompFilter }) => ({
    name: "seccomp",
    ok: true,
    found: hasSeccompFilter ? "a filter" : "no filter",
    meaning: hasSeccompFilter ? "what it refuses shows in the other lines" : "no system call is kept back",
  }),
  ({ hasProc, cgroups: { refusal } }) =>
    check(
      "/proc",
      hasProc,
      hasProc ? "there" : "not mounted",
      "processes can be found",
      refusal === undefined
        ? "commands that look for it fail; the agent finds processes by their cgroup"
        : "only the process group of a command can be ended, not what left it. Mount it",
    ),
  // /dev/null, which most programs expect.
  ({ devices: { "/dev/null": problem } }) =>
    check(
      "/dev/null",
      problem === undefined,
      problem ?? "there",
      "commands without input read from it",
      "commands without input get an empty pipe; shells and many programs want it. Give the image /dev",
    ),
  ({ terminal: problem }) =>
    check(
      "terminal",
      problem === undefined,
      problem ?? "opened",
      "Exec with a terminal works",
      "Exec with a terminal fails with EXEC_SETUP_FAILED. Mount devpts at /dev/pts and link /dev/ptmx to pts/ptmx",
    ),
  // Names of users.
  ({ hasAccounts }) => ({
    name: "/etc/passwd",
    ok: true,
    found: hasAccounts ? "there" : "none",
    meaning: hasAccounts ? "users can be named" : "users can be given by number only; HOME is /",
  }),
  // A cgroup for each command.
  ({ cgroups: { refusal, controllers } }) =>
    check(
      "cgroups",
      refusal === undefined,
      refusal ?? `version 2${controllers.length > 0 ? `: ${controllers.join(" ")}` : ", no controllers"}`,
      `each command has its own, and is killed with all it started; oom_killed is ${controllers.includes("memory") ? "" : "not "}reported`,
      "processes of a command are found by walking /proc; daemons escape. Mount cgroup2 writable, or give CAP_SYS_ADMIN",
    ),
  // Memory that the agent shares with the workload.
  ({ memory: { totalBytes, limitBytes } }) =>
    check(
      "memory",
      (limitBytes ?? totalBytes) >= ENOUGH_MEMORY_BYTES,
      `${mebibytes(totalBytes)}${limitBytes === undefined ? "" : `, limited to ${mebibytes(limitBytes)}`}`,
      "enough for the agent",
      "the agent alone wants 128 MiB under load; raise the limit",
    ),
  // Open files of the agent. Children get the limit that the agent's entrypoint was started with.
  ({ openFiles: limit }) =>
    check(
      "open files",
      limit >= ENOUGH_OPEN_FILES,
      String(limit),
      "enough for 256 commands at once",
      "fewer than 256 commands at once; raise the hard RLIMIT_NOFILE to 2048",
    ),
  // The random device of programs that do not use the system call.
  ({ devices: { "/dev/urandom": problem } }) =>
    check(
      "/dev/urandom",
      problem === undefined,
      problem ?? "there",
      "programs and restore duties have their random device",
      "programs that open it fail; the agent makes one of its own for restore duties, if it may",
    ),
  // Whether restore duties can credit entropy.
  ({ entropy: { open, credit } }) =>
    check(
      "entropy",
      open === undefined && credit === undefined,
      open ?? credit ?? "can be credited",
      "restore duties credit what the host sends, and force a reseed",
      open === undefined
        ? "mixed in but not credited, and no reseed is forced. Give CAP_SYS_ADMIN in the first user namespace"
        : "RunRestoreDuties reports entropy_open; only the agent's own generator is fresh. Give /dev/urandom",
    ),
  // Whether a forced reseed is reliable.
  ({ entropy: { confirmsReseed } }) =>
    check(
      "reseed",
      confirmsReseed,
      confirmsReseed ? "confirmed" : "not confirmed",
      "a reseed that the kernel reports has happened",
      "before 5.18 the kernel may report a reseed that did not happen: crng_reseed:unverified",
    ),
  // Whether restore duties can step the clock.
  ({ clockStep }) =>
    check(
      "clock",
      clockStep === undefined,
      clockStep ?? "can be stepped",
      "restore duties set the time",
      "RunRestoreDuties reports clock_set and clock_stepped false. Give CAP_SYS_TIME in the first user namespace",
    ),
];

/** All checks of a guest. */
export function checkGuest(facts: GuestFacts): Check[] {
  return CHECKS.map((checkOf) => checkOf(facts));
}

const FOUND_WIDTH = 24;
const MEANING_WIDTH = 72;
const GAP = "  ";

/** The checks as a table: verdict, name, finding and consequence. */
export function describeChecks(checks: readonly Check[]): string {
  const rows = checks.map(({ ok, name, found, meaning }) => [
    [ok ? "ok" : "limited"],
    [name],
    wrap(found, FOUND_WIDTH),
    wrap(meaning, MEANING_WIDTH),
  ]);
  const widths = [0, 1, 2].map((column) =>
    Math.max(...rows.flatMap((row) => (row[column] ?? []).map((text) => text.length))),
  );
  const lines = rows.flatMap((row) =>
    Array.from({ length: Math.max(...row.map((cell) => cell.length)) }, (_, index) =>
      row
        .map((cell, column) => (cell[index] ?? "").padEnd(widths[column] ?? 0))
        .join(GAP)
        .trimEnd(),
    ),
  );
  return `${lines.join("\n")}\n`;
}
