import { GuestError } from "../errors/errors.ts";
import type { LeftEntry } from "./tree-entry.ts";

/** Limit on the entries that the error message names. */
const NAMED = 3;

/** Creates the error with which `rm` rejects if some entries of the directory remain. */
export function removeIncomplete(removed: number, left: number, leftEntries: readonly LeftEntry[]): GuestError {
  const named = leftEntries.slice(0, NAMED).map(({ name, errno }) => `${name === "" ? "." : name}: ${errno}`);
  const more = left > named.length ? `; and ${left - named.length} more` : "";
  const entries = left === 1 ? "1 entry" : `${left} entries`;
  const message = `${entries} could not be removed, all others were: ${named.join("; ")}${more}`;
  const metadata = { removed: String(removed), left: String(left) };
  return new GuestError({ status: "FAILED_PRECONDITION", code: "REMOVE_INCOMPLETE", message, metadata });
}

/**
 * If `rm` failed because the directory is not empty, returns an error that also names the option `recursive`. Returns
 * other errors unchanged.
 */
export function withRecursive(error: unknown): unknown {
  if (!(error instanceof GuestError) || error.reason !== "FOLDER_NOT_EMPTY") return error;
  const { status, reason, cause } = error;
  const message = `${error.message}; recursive: true removes it with everything in it`;
  const metadata = { ...error.metadata, field: "recursive" };
  return new GuestError({ status, reason, message, metadata, cause });
}
