import { closeSync, statfsSync, statSync } from "node:fs";

import type { Errno, GuestFacts } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";

/** Device numbers (Documentation/admin-guide/devices.txt), major * 256 + minor. */
const DEVICES: Readonly<Record<string, number>> = {
  "/dev/null": 0x103,
  "/dev/urandom": 0x109,
};
/** PROC_SUPER_MAGIC (statfs(2)). */
const PROC_FILE_SYSTEM = 0x9fa0;
const COLUMNS = 80;
const ROWS = 24;

/** What is wrong with each device that commands expect. */
export function deviceProblems(): GuestFacts["devices"] {
  return Object.fromEntries(Object.entries(DEVICES).map(([path, number]) => [path, deviceProblem(path, number)]));
}

function deviceProblem(path: string, number: number): string | undefined {
  try {
    const stat = statSync(path);
    return stat.isCharacterDevice() && stat.rdev === number ? undefined : "NOT_A_DEVICE";
  } catch (error) {
    return errnoOf(error);
  }
}

/** The image may have a folder of that name. */
export function isProcMounted(): boolean {
  try {
    return statfsSync("/proc").type === PROC_FILE_SYSTEM;
  } catch {
    return false;
  }
}

/** Opens a terminal, as for a command, and closes it again. */
export function terminalProblem(addon: Pick<Addon, "openTerminal">): Errno | undefined {
  const opened = addon.openTerminal(COLUMNS, ROWS);
  if (typeof opened === "number") return errnoName(opened);
  for (const fd of opened) closeSync(fd);
  return undefined;
}

function errnoOf(error: unknown): Errno {
  const number = error instanceof Error && "errno" in error ? Number(error.errno) : Number.NaN;
  return Number.isNaN(number) ? "EIO" : errnoName(number);
}
