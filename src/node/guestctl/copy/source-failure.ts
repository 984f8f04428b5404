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
/** Names of the error classes of guestctl and its tar library that concern a single path. */
const LOCAL: ReadonlySet<string> = new Set(["CliError", "EntryError", "UnpackError"]);

/** Why one source could not be copied, if the other sources still can be. Undefined if the error ends the whole copy. */
export function sourceFailure(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const isOfPath = error instanceof GuestError && ABOUT_A_PATH.has(error.code);
  return isOfPath || LOCAL.has(error.name) ? failureWords(error) : undefined;
}

/**
 * Returns an error handler that accepts a partial copy of a directory, because its failed entries are reported already.
 * Other errors are rethrown.
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
