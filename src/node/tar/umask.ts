import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

/** The most common umask, for systems where it cannot be determined. */
const USUAL = 0o022;

/**
 * The umask of this process. process.umask() is not used, because it sets the umask to 0 for a moment, in which another
 * thread may create a file.
 */
export function currentUmask(): number {
  return ofKernel() ?? ofShell() ?? USUAL;
}

/** Reads the umask from the kernel, which reports it since Linux 4.7 (proc_pid_status(5)). */
function ofKernel(): number | undefined {
  try {
    return octal(/^Umask:\s*([0-7]+)$/m.exec(readFileSync("/proc/self/status", "latin1"))?.[1]);
  } catch {
    return undefined;
  }
}

/** Asks a shell: a child process inherits the umask. This is needed on macOS, which has no /proc. */
function ofShell(): number | undefined {
  try {
    return octal(execFileSync("/bin/sh", ["-c", "umask"], { encoding: "latin1" }).trim());
  } catch {
    return undefined;
  }
}

function octal(digits: string | undefined): number | undefined {
  return digits === undefined || !/^[0-7]{1,4}$/.test(digits) ? undefined : Number.parseInt(digits, 8);
}
