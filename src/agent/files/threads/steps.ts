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
 * The error of a failed addon call. `result` is an errno, positive or negated. A call with several steps adds the
 * number of the failed step in the bits above the lower 16. If there is no such number, the failed step is `step`.
 */
export function failureOf(result: number, step: FileStep): FileSystemError {
  const value = Math.abs(result);
  return new FileSystemError(STEPS[value >> STEP_SHIFT] ?? step, errnoName(value & ((1 << STEP_SHIFT) - 1)));
}
