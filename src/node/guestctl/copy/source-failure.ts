import { GuestError } from "../../client/index.ts";
import { failureWords } from "../cli/index.ts";
import type { CopyContext } from "./report.ts";

/**
 * Error codes that concern a single path: reasons that the agent sends, and codes of the client library about a local
 * file.
 */
const ABOUT_A_PATH: ReadonlySet<string> = new Set([
  "ALREADY_EXISTS",
  "CHECKSUM_MISMATCH",
  "CROSS_DEVICE",
  "DESTINATION_FAILED",
  "FILE_CHANGED",
  "FILE_ERROR",
  "FILE_SYSTEM_HUNG",
  "MOUNT_POINT",
  "NOT_A_FOLDER",
  "NOT_A_REGULAR_FILE",
  "NO_SPACE",
  "PATH_ESCAPES",
  "PATH_NOT_FOUND",
  "PATH_PERMISSION_DENIED",
  "SIZE_MISMATCH",
  "SOURCE_FAILED",
]);
/** Names of the error classes of guestctl and its tar library whose errors concern a single path. */
const LOCAL: ReadonlySet<string> = new Set(["CliError", "EntryError", "UnpackError"]);

/**
 * Returns the reason why one source could not be copied. Returns undefined if the error ends the whole copy, so that
 * the other sources are not copied either.
 */
export function sourceFailure(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const isOfPath = error instanceof GuestError && ABOUT_A_PATH.has(error.code);
  return isOfPath || LOCAL.has(error.name) ? failureWords(error) : undefined;
}

/**
 * Returns an error handler for the copy of a directory. If only some entries failed, the handler returns how much was
 * copied, because the failed entries are already reported. With `failFast`, and for any other error, the handler
 * rethrows the error.
 */
export function ifPartial({
  options,
  report,
}: CopyContext): (error: unknown) => { readonly files: number; readonly bytes: number } {
  return (error) => {
    if (!(error instanceof GuestError) || error.code !== "COPY_INCOMPLETE" || options.failFast) throw error;
    const { files, bytes, unnamed } = error.metadata;
    report.skipUnnamed(Number(unnamed));
    return { files: Number(files), bytes: Number(bytes) };
  };
}
