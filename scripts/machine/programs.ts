import { execFileSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { messageOf } from "../../src/shared/errors.ts";

/** A program in PATH, and its Debian package. */
export interface Program {
  readonly name: string;
  readonly package: string;
}

/** Debian's folders for root's programs, which not every PATH has, and for those that sshd starts. */
const SYSTEM_FOLDERS = ["/usr/sbin", "/sbin", "/usr/lib/openssh"];

/** The programs that are not in PATH. */
export function missingPrograms(programs: readonly Program[], path: string = process.env["PATH"] ?? ""): Program[] {
  const folders = [...path.split(delimiter), ...SYSTEM_FOLDERS];
  return programs.filter(({ name }) => !folders.some((folder) => isExecutable(join(folder, name))));
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
 * Installs missing programs with apt-get, if possible: as root, on Debian and its derivatives.
 *
 * @param purpose what the programs are for; part of the messages on stderr
 * @returns the programs that are missing still; stderr has what to do about them
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
 * @throws Error with what apt-get printed
 */
export function installPackages(names: readonly string[]): void {
  aptGet(["update", "-qq"]);
  aptGet(["install", "-y", "-qq", "--no-install-recommends", ...names]);
}

function aptGet(args: readonly string[]): void {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  // Another apt-get, of this machine's own or of a second checkout, is waited for. Not with execa, which makes a
  // terminal on the standard streams non-blocking as soon as it is loaded: programs of tests hand theirs on.
  execFileSync("apt-get", ["-o", "DPkg::Lock::Timeout=300", ...args], { env, stdio: ["ignore", "ignore", "pipe"] });
}

function packagesOf(programs: readonly Program[]): string[] {
  return [...new Set(programs.map((program) => program.package))];
}

function say(text: string): void {
  process.stderr.write(`setup: ${text}\n`);
}
