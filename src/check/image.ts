import type { CheckOf } from "./check.ts";

/** The process file system. */
export const proc: CheckOf = ({ hasProc, cgroups }) => ({
  name: "/proc",
  ok: hasProc,
  found: hasProc ? "there" : "not mounted",
  meaning: hasProc
    ? "processes can be found"
    : cgroups.refusal === undefined
      ? "commands that look for it fail; the agent finds processes by their cgroup"
      : "only the process group of a command can be ended, not what left it. Mount it",
});

/** The device that most programs expect. */
export const nullDevice: CheckOf = ({ devices }) =>
  device(devices["/dev/null"], "/dev/null", {
    there: "commands without input read from it",
    missing: "commands without input get an empty pipe; shells and many programs want it. Give the image /dev",
  });

/** Where programs of the guest have their randomness from, if not by system call. */
export const randomDevice: CheckOf = ({ devices }) =>
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
export const terminal: CheckOf = ({ terminal: problem }) => ({
  name: "terminal",
  ok: problem === undefined,
  found: problem ?? "opened",
  meaning:
    problem === undefined
      ? "Exec with a terminal works"
      : "Exec with a terminal fails with EXEC_SETUP_FAILED. Mount devpts at /dev/pts and link /dev/ptmx to pts/ptmx",
});

/** Names of users. */
export const accounts: CheckOf = ({ hasAccounts }) => ({
  name: "/etc/passwd",
  ok: true,
  found: hasAccounts ? "there" : "none",
  meaning: hasAccounts ? "users can be named" : "users can be given by number only; HOME is /",
});
