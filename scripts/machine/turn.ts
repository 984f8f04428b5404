import { spawnSync } from "node:child_process";
import { mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";

/**
 * Waits until no other process has the lock of a file, and holds it until this one ends, however it ends. The lock
 * belongs to the open file (flock(2)), which only this process has. Without flock(1) nothing is locked.
 *
 * @param waits is called when the lock is not free
 */
export function takeTurn(file: string, waits: () => void): void {
  mkdirSync(dirname(file), { recursive: true });
  const lock = openSync(file, "a");
  const flock = (...args: readonly string[]): number | null =>
    spawnSync("flock", [...args, "3"], { stdio: ["ignore", "ignore", "inherit", lock] }).status;
  if (flock("--nonblock") !== 1) return;
  waits();
  flock();
}
