import { EntryError } from "./entry-error.ts";

/**
 * An entry cannot be written on this machine: an existing entry conflicts with it, or a system call failed, whose error
 * is the cause.
 */
export class UnpackError extends EntryError {
  override readonly name = "UnpackError";
}
