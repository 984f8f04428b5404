import { execFileSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { messageOf } from "../../src/shared/errors.ts";

/** A program that must be in PATH, and its Debian package. */
export interface Program {
  readonly name: string;
  readonly package: string;
}

/** Debian's directories for root's programs, and for programs that sshd starts. PATH may lack them. */
const SYSTEM_DIRECTORIES = ["/usr/sbin", "/sbin", "/usr/lib/openssh"];

/** Returns the programs that are not in PATH. */
export function missingPrograms(programs: readonly Program[], path: string = process.env["PATH"] ?? ""): Program[] {
  const directories = [...path.split(delimiter), ...SYSTEM_DIRECTORIES];
  return programs.filter(({ name }) => !directories.some((directory) => isExecutable(join(directory, name))));
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Tries to install missing programs with apt-get, which works as root on Debian and its derivatives.
 *
 * @param purpose what the programs are needed for, for the messages on stderr
 * @returns the programs that are still missing; stderr then explains what to do
 */
export function providePrograms(programs: readonly Program[], purpose: string): Program[] {
  const missing = missingPrograms(programs);
  if (missing.length === 0) return [];
  if (process.getuid?.() === 0 && missingPrograms([{ name: "apt-get", package: "apt" }]).length === 0) {
    say(`installing with apt-get, ${purpose}: ${packagesOf(missing).join(" ")}`);
    try {
      installPackages(packagesOf(missing));
    } catch (error) {
      say(`apt-get failed: ${messageOf(error)}`);
    }
  }
  const still = missingPrograms(missing);
  if (still.length > 0) {
    const names = still.map(({ name }) => name).join(", ");
    say(`missing, ${purpose}: ${names} (Debian, Ubuntu: apt-get install ${packagesOf(still).join(" ")})`);
  }
  return still;
}

/**
 * Installs packages of Debian.
 *
 * @throws Error that contains the output of apt-get
 */
export function installPackages(names: readonly string[]): void {
  aptGet(["update", "-qq"]);
  aptGet(["install", "-y", "-qq", "--no-install-recommends", ...names]);
}

function aptGet(args: readonly string[]): void {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  // Waits for another apt-get, which the machine or a second checkout may run. execa is not used, because merely
  // loading it makes a terminal on the standard streams non-blocking, and tests pass their standard streams on to other
  // programs.
  execFileSync("apt-get", ["-o", "DPkg::Lock::Timeout=300", ...args], { env, stdio: ["ignore", "ignore", "pipe"] });
}

function packagesOf(programs: readonly Program[]): string[] {
  return [...new Set(programs.map((program) => program.package))];
}

function say(text: string): void {
  process.stderr.write(`setup: ${text}\n`);
}
