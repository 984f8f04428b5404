/** Returns the message of an Error, or any other thrown value as text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * The name of a library's error that has a code. If the caller's signal was aborted, name and code are those of Node's
 * AbortError, because programs check for them.
 */
export function nameWithCode(code: string, name: string): string {
  return code === "ABORT_ERR" ? "AbortError" : name;
}

/** The symbolic errno (such as ENOENT) of a failed system call of Node; undefined for any other error. */
export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error ? String(error.code) : undefined;
}
