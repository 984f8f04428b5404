import { EntryError } from "./entry-error.ts";

/**
 * An entry cannot be written on this machine, because an existing entry conflicts with it, or because a system call
 * failed. In the second case, the system call's error is the cause.
 */
export class UnpackError extends EntryError {
  override readonly name = "UnpackError";
}
