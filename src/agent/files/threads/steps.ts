import { type FileStep, FileSystemError } from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";

/** Step names, indexed by the numbers in addon/entry.h. */
const STEPS: readonly (FileStep | undefined)[] = [
  undefined,
  "create",
  "write",
  "chown",
  "chmod",
  "utime",
  "sync",
  "place",
  "sync_folder",
];
const STEP_SHIFT = 16;

/**
 * Returns the error of a failed addon call. `result`, which may be negated, packs two numbers:
 *
 * - The lower 16 bits are the errno.
 * - The higher bits are the number of the failed step, or 0 for `step`.
 */
export function failureOf(result: number, step: FileStep): FileSystemError {
  const value = Math.abs(result);
  return new FileSystemError(STEPS[value >> STEP_SHIFT] ?? step, errnoName(value & ((1 << STEP_SHIFT) - 1)));
}
