import { type FileStep, FileSystemError } from "../../domain/index.ts";
import { errnoName } from "../../native/index.ts";

/** The steps of addon/entry.h, by their numbers. */
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
 * The error of a call of the addon that has failed. `result` holds an errno, of either sign, and above its lower 16
 * bits the step that failed, where the call has several; else that is `step`.
 */
export function failureOf(result: number, step: FileStep): FileSystemError {
  const value = Math.abs(result);
  return new FileSystemError(STEPS[value >> STEP_SHIFT] ?? step, errnoName(value & ((1 << STEP_SHIFT) - 1)));
}
