/** Returns the message of an Error, or any other thrown value as text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The symbolic errno (such as ENOENT) of a failed system call of Node; undefined for any other error. */
export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error ? String(error.code) : undefined;
}
