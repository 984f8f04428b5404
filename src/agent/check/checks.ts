import type { GuestFacts } from "../domain/index.ts";
import { wrap } from "../../shared/text.ts";

/** The result for one feature that the agent can use, such as cgroups. */
export interface Check {
  readonly name: string;
  /** False if the guest lacks the feature. The agent still works, but can do less. */
  readonly ok: boolean;
  /** What the check found in the guest, such as a version, a size or an errno, or a description of the problem. */
  readonly found: string;
  /** What the finding means for the user; for a missing feature, also how to make it available. */
  readonly meaning: string;
}

/**
 * Whether the feature is missing:
 *
 * - undefined or false: the guest has the feature
 * - true: the guest lacks it
 * - a text: the guest lacks it, and the text is shown in place of `found`
 */
type Problem = string | boolean | undefined;

function check(name: string, problem: Problem, found: string, whenGood: string, otherwise: string): Check {
  const ok = problem === undefined || problem === false;
  return { name, ok, found: typeof problem === "string" ? problem : found, meaning: ok ? whenGood : otherwise };
}

/** The Linux version with cgroup.kill, the newest kernel feature that this check requires. */
const NEWEST = { major: 5, minor: 14 };

function isAtLeast(release: string, { major, minor }: typeof NEWEST): boolean {
  const [, itsMajor = 0, itsMinor = 0] = /^(\d+)\.(\d+)/.exec(release)?.map(Number) ?? [];
  return itsMajor > major || (itsMajor === major && itsMinor >= minor);
}

/** Capabilities that the agent uses (capabilities(7)), and what fails without each. */
const CAPABILITIES: readonly (readonly [name: string, bit: number, without: string])[] = [
  ["CAP_CHOWN", 0, "WriteFile cannot set the owner"],
  ["CAP_DAC_OVERRIDE", 1, "files of other users may not be accessible"],
  ["CAP_FOWNER", 3, "WriteFile cannot set the mode of files of other users"],
  ["CAP_KILL", 5, "commands of other users cannot be ended"],
  ["CAP_SETGID", 6, "commands cannot run as another user"],
  ["CAP_SETUID", 7, "commands cannot run as another user"],
  ["CAP_SYS_ADMIN", 21, "restore steps cannot credit entropy; commands get cgroups only if cgroup2 is already mounted"],
  ["CAP_SYS_NICE", 23, "a busy workload slows the agent down"],
  ["CAP_SYS_TIME", 25, "the clock is not stepped"],
];

const MIB = 1024 * 1024;
/** Memory that is enough for the idle agent and some commands. With less, the kernel's OOM killer soon kills processes. */
const ENOUGH_MEMORY_BYTES = 128 * MIB;
/**
 * Limit for open files that is enough. The maximum of 256 commands uses up to 1,024 descriptors; files and connections
 * use the rest.
 */
const ENOUGH_OPEN_FILES = 2048;

function mebibytes(bytes: number): string {
  return `${Math.floor(bytes / MIB)} MiB`;
}

/** All checks, in the order in which they are shown. */
export function checkGuest(facts: GuestFacts): Check[] {
  const { kernel, systemCalls, uid, isInit, capabilities, hasSeccompFilter, hasProc, hasAccounts, hasVsock } = facts;
  const { cgroups, devices, entropy, memory, openFiles, terminal, clockStep } = facts;
  const refused = Object.entries(systemCalls).filter(([, errno]) => errno !== undefined);
  const missing = CAPABILITIES.filter(([, bit]) => (((capabilities ?? 0n) >> BigInt(bit)) & 1n) === 0n);
  return [
    check(
      "kernel",
      !isAtLeast(kernel, NEWEST),
      kernel,
      "the agent can end all processes of a command together (Linux 5.14)",
      "older than 5.14: a command's processes are found by walking /proc, which misses daemons, so they are not killed",
    ),
    // A system call may be missing even if the kernel has it: seccomp filters of older container runtimes refuse newer
    // calls.
    check(
      "system calls",
      refused.length > 0 && refused.map(([name, why]) => `${name}: ${why}`).join(", "),
      Object.keys(systemCalls).join(", "),
      "commands start in their own cgroup, without inherited descriptors",
      "the agent uses slower system calls in place of the refused ones; allow the refused ones in the guest's seccomp filter, or use a newer kernel",
    ),
    check(
      "user",
      uid !== 0,
      `${uid}${isInit ? ", PID 1" : ""}`,
      "the agent runs as root",
      "the agent runs commands and accesses files as this user",
    ),
    capabilities === undefined
      ? {
          name: "capabilities",
          ok: false,
          found: "not reported",
          meaning: "unknown: the kernel does not report the capabilities",
        }
      : check(
          "capabilities",
          missing.length > 0 && `without ${missing.map(([name]) => name).join(" ")}`,
          "has every capability that the agent uses",
          "no operation fails for lack of a capability",
          [...new Set(missing.map(([, , without]) => without))].join("; "),
        ),
    {
      name: "seccomp",
      ok: true,
      found: hasSeccompFilter ? "a filter" : "no filter",
      meaning: hasSeccompFilter
        ? "the other lines of this report show what the filter refuses"
        : "no system call is filtered",
    },
    {
      name: "vsock",
      ok: true,
      found: hasVsock ? "there" : "none",
      meaning: hasVsock
        ? "the host can reach SVC_GUEST_VSOCK_PORT if the VMM gives the guest a vsock device"
        : "the agent cannot listen on SVC_GUEST_VSOCK_PORT: the kernel needs CONFIG_VSOCKETS and the VMM's vsock transport",
    },
    check(
      "/proc",
      !hasProc && "not mounted",
      "there",
      "the agent finds all processes of a command",
      cgroups.refusal === undefined
        ? "programs that read /proc fail; the agent finds processes by their cgroup"
        : "the agent can end only the process group of a command, not processes that left the group. Mount /proc",
    ),
    check(
      "/dev/null",
      devices["/dev/null"],
      "there",
      "a command without standard input gets /dev/null as its input",
      "a command without standard input gets an empty pipe, but shells and many programs require /dev/null. Create it in the image",
    ),
    check(
      "terminal",
      terminal,
      "opened",
      "Exec with a terminal works",
      "Exec with a terminal fails with EXEC_SETUP_FAILED. Mount devpts at /dev/pts and link /dev/ptmx to pts/ptmx",
    ),
    {
      name: "/etc/passwd",
      ok: true,
      found: hasAccounts ? "there" : "none",
      meaning: hasAccounts ? "users can be given by name" : "users can be given only by number; HOME is /",
    },
    check(
      "cgroups",
      cgroups.refusal,
      cgroups.controllers.length > 0 ? `version 2: ${cgroups.controllers.join(" ")}` : "version 2, no controllers",
      `each command has its own cgroup, so all of its processes can be killed; the agent ${cgroups.controllers.includes("memory") ? "reports" : "cannot report"} whether the kernel's OOM killer killed a command`,
      "a command's processes are found by walking /proc, which misses daemons. Mount cgroup2 writable, or give the agent CAP_SYS_ADMIN",
    ),
    check(
      "memory",
      (memory.limitBytes ?? memory.totalBytes) < ENOUGH_MEMORY_BYTES,
      memory.limitBytes === undefined
        ? mebibytes(memory.totalBytes)
        : `${mebibytes(memory.totalBytes)}, limited to ${mebibytes(memory.limitBytes)}`,
      "enough for the agent",
      "the agent alone requires 128 MiB under load; raise the limit",
    ),
    // `openFiles` is the hard limit of the agent, which its commands inherit.
    check(
      "open files",
      openFiles < ENOUGH_OPEN_FILES,
      String(openFiles),
      "enough for 256 commands at once",
      "fewer than 256 commands can run at once; raise the hard RLIMIT_NOFILE to 2048",
    ),
    check(
      "/dev/urandom",
      devices["/dev/urandom"],
      "there",
      "programs and the restore steps can use the random device",
      "programs that open /dev/urandom fail. The restore steps still work if the guest lets the agent create a device node of its own",
    ),
    check(
      "entropy",
      entropy.open ?? entropy.credit,
      "can be credited",
      "the restore steps can credit the host's entropy and make the kernel reseed its random generator",
      entropy.open === undefined
        ? "the host's entropy is mixed in but not credited, and the kernel is not forced to reseed. Give the agent CAP_SYS_ADMIN in the initial user namespace"
        : 'there is no random device, so the restore steps reseed only the random generator of the agent, and RunRestoreDuties reports "entropy_open" in "degraded". Create /dev/urandom in the guest',
    ),
    check(
      "reseed",
      !entropy.confirmsReseed && "not confirmed",
      "confirmed",
      "the kernel reports a reseed reliably",
      'kernels before 5.18 may report success without reseeding, so RunRestoreDuties reports "crng_reseed:unverified" in "degraded"',
    ),
    check(
      "clock",
      clockStep,
      "can be stepped",
      "the restore steps set the clock",
      'the restore steps cannot set the clock, and RunRestoreDuties reports "clock_set" in "degraded". Give the agent CAP_SYS_TIME in the initial user namespace',
    ),
  ];
}

const FOUND_WIDTH = 24;
const MEANING_WIDTH = 72;
const GAP = "  ";

/** The checks as a table with the columns verdict, name, finding and consequence. */
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
