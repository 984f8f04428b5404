import { printable, printableCause } from "../../shared/printable.ts";

/**
 * One entry cannot be copied: a file cannot be read or written, became shorter, or has vanished. A copy with a failure
 * callback continues with the next entry. An EntryError may also be the `cause` of another error.
 */
export class EntryError extends Error {
  override readonly name: string = "EntryError";
  /** Name of the errno, such as "EIO"; "ESTALE" for a file that became shorter. */
  readonly errno: string;

  constructor(errno: string, message: string, options?: ErrorOptions) {
    super(printable(message), options && { cause: printableCause(options.cause) });
    this.errno = errno;
  }
}

/**
 * Returns the error itself if it is an EntryError, or its cause if that is one. Undefined for an error that ends the
 * whole copy.
 */
export function entryErrorOf(error: unknown): EntryError | undefined {
  if (error instanceof EntryError) return error;
  return error instanceof Error && error.cause instanceof EntryError ? error.cause : undefined;
}

/**
 * Creates the error for a file that became shorter while it was copied, so that a partial copy is not mistaken for a
 * whole one.
 */
export function becameShorter(path: string): EntryError {
  return new EntryError("ESTALE", `${path} became shorter while it was being copied; copy it again`);
}
