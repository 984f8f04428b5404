import type { GuestFacts } from "../domain/index.ts";

/** One thing that the agent uses where a guest has it. */
export interface Check {
  readonly name: string;
  /** False: the agent works without it, but not everything that it does does. */
  readonly ok: boolean;
  /** What is there, or the kernel's refusal. */
  readonly found: string;
  /** What follows from it and, where something is missing, what to do. */
  readonly meaning: string;
}

/** Looks at one thing. */
type CheckOf = (facts: GuestFacts) => Check;

/** cgroup.kill came with Linux 5.14; the newest thing that the agent uses. */
const NEWEST = { major: 5, minor: 14 };

function isAtLeast(release: string, { major, minor }: typeof NEWEST): boolean {
  const [, itsMajor = 0, itsMinor = 0] = /^(\d+)\.(\d+)/.exec(release)?.map(Number) ?? [];
  return itsMajor > major || (itsMajor === major && itsMinor >= minor);
}

/** Age of the kernel. */
const kernel: CheckOf = ({ kernel: found }) => {
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
const systemCalls: CheckOf = ({ systemCalls: calls }) => {
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
const cgroups: CheckOf = ({ cgroups: { refusal, controllers } }) => {
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
const account: CheckOf = ({ uid, isInit }) => ({
  name: "user",
  ok: uid === 0,
  found: `${uid}${isInit ? ", PID 1" : ""}`,
  meaning: uid === 0 ? "the agent has the guest's own root" : "commands run as this user, and files are reached as it",
});

/** What the agent may do. */
const capabilities: CheckOf = ({ capabilities: held }) => {
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
const seccomp: CheckOf = ({ hasSeccompFilter }) => ({
  name: "seccomp",
  ok: true,
  found: hasSeccompFilter ? "a filter" : "no filter",
  meaning: hasSeccompFilter ? "what it refuses shows in the other lines" : "no system call is kept back",
});

/** The process file system. */
const proc: CheckOf = ({ hasProc, cgroups: { refusal } }) => ({
  name: "/proc",
  ok: hasProc,
  found: hasProc ? "there" : "not mounted",
  meaning: hasProc
    ? "processes can be found"
    : refusal === undefined
      ? "commands that look for it fail; the agent finds processes by their cgroup"
      : "only the process group of a command can be ended, not what left it. Mount it",
});

/** The device that most programs expect. */
const nullDevice: CheckOf = ({ devices }) =>
  device(devices["/dev/null"], "/dev/null", {
    there: "commands without input read from it",
    missing: "commands without input get an empty pipe; shells and many programs want it. Give the image /dev",
  });

/** Where programs of the guest have their randomness from, if not by system call. */
const randomDevice: CheckOf = ({ devices }) =>
  device(devices["/dev/urandom"], "/dev/urandom", {
    there: "programs and restore duties have their random device",
    missing: "programs that open it fail; the agent makes one of its own for restore duties, if it may",
  });

function device(
  problem: string | undefined,
  name: string,
  { there, missing }: { readonly there: string; readonly missing: string },
): ReturnType<CheckOf> {
  return problem === undefined
    ? { name, ok: true, found: "there", meaning: there }
    : { name, ok: false, found: problem, meaning: missing };
}

/** Pseudoterminals. */
const terminal: CheckOf = ({ terminal: problem }) => ({
  name: "terminal",
  ok: problem === undefined,
  found: problem ?? "opened",
  meaning:
    problem === undefined
      ? "Exec with a terminal works"
      : "Exec with a terminal fails with EXEC_SETUP_FAILED. Mount devpts at /dev/pts and link /dev/ptmx to pts/ptmx",
});

/** Names of users. */
const accounts: CheckOf = ({ hasAccounts }) => ({
  name: "/etc/passwd",
  ok: true,
  found: hasAccounts ? "there" : "none",
  meaning: hasAccounts ? "users can be named" : "users can be given by number only; HOME is /",
});

const MIB = 1024 * 1024;
/** The agent at rest and some commands; less, and the kernel will look for something to kill. */
const ENOUGH_MEMORY_BYTES = 128 * MIB;
/** 256 commands take up to four descriptors each, and files and connections come on top. */
const ENOUGH_OPEN_FILES = 2048;

function mebibytes(bytes: number): string {
  return `${Math.floor(bytes / MIB)} MiB`;
}

/** Memory that the agent shares with the workload. */
const memory: CheckOf = ({ memory: { totalBytes, limitBytes } }) => {
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
const openFiles: CheckOf = ({ openFiles: limit }) => ({
  name: "open files",
  ok: limit >= ENOUGH_OPEN_FILES,
  found: String(limit),
  meaning:
    limit >= ENOUGH_OPEN_FILES
      ? "enough for 256 commands at once"
      : "fewer than 256 commands at once; raise the hard RLIMIT_NOFILE to 2048",
});

/** Whether restore duties can step the clock. */
const clock: CheckOf = ({ clockStep }) => ({
  name: "clock",
  ok: clockStep === undefined,
  found: clockStep ?? "can be stepped",
  meaning:
    clockStep === undefined
      ? "restore duties set the time"
      : "RunRestoreDuties reports clock_set and clock_stepped false. Give CAP_SYS_TIME in the first user namespace",
});

/** Whether restore duties can credit entropy. */
const entropy: CheckOf = ({ entropy: { open, credit } }) => {
  const name = "entropy";
  if (open !== undefined) {
    const meaning = "RunRestoreDuties reports entropy_open; only the agent's own generator is fresh. Give /dev/urandom";
    return { name, ok: false, found: open, meaning };
  }
  return {
    name,
    ok: credit === undefined,
    found: credit ?? "can be credited",
    meaning:
      credit === undefined
        ? "restore duties credit what the host sends, and force a reseed"
        : "mixed in but not credited, and no reseed is forced. Give CAP_SYS_ADMIN in the first user namespace",
  };
};

/** Whether a forced reseed can be relied on. */
const reseed: CheckOf = ({ entropy: { confirmsReseed } }) => ({
  name: "reseed",
  ok: confirmsReseed,
  found: confirmsReseed ? "confirmed" : "not confirmed",
  meaning: confirmsReseed
    ? "a reseed that the kernel reports has happened"
    : "before 5.18 the kernel may report a reseed that did not happen: crng_reseed:unverified",
});

const CHECKS: readonly CheckOf[] = [
  kernel,
  systemCalls,
  account,
  capabilities,
  seccomp,
  proc,
  nullDevice,
  terminal,
  accounts,
  cgroups,
  memory,
  openFiles,
  randomDevice,
  entropy,
  reseed,
  clock,
];

/** Judges what was found out about a guest. */
export function checkGuest(facts: GuestFacts): Check[] {
  return CHECKS.map((check) => check(facts));
}

const FOUND_WIDTH = 24;
const MEANING_WIDTH = 72;
const GAP = "  ";

/** Lines of at most `width` characters, broken at blanks; a longer word has a line of its own. */
function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === "" ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}

/** Checks for people: a row each, of verdict, name, what was found, and what it means. */
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
