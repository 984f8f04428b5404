/**
 * One entry cannot be copied: a file that cannot be read or written, became shorter, or has vanished. A copy that hears
 * of failures goes on with the next entry. It may be the `cause` of another error.
 */
export class EntryError extends Error {
  override readonly name: string = "EntryError";
  /** Symbolic name of the errno, such as "EIO"; "ESTALE" for a file that became shorter. */
  readonly errno: string;

  constructor(errno: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.errno = errno;
  }
}

/** The failure of one entry that an error is, or is about; undefined: an error that ends the whole copy. */
export function entryErrorOf(error: unknown): EntryError | undefined {
  if (error instanceof EntryError) return error;
  return error instanceof Error && error.cause instanceof EntryError ? error.cause : undefined;
}

/** The failure of a file that became shorter while it was copied: a part is not to be taken for the whole. */
export function becameShorter(path: string): EntryError {
  return new EntryError("ESTALE", `${path} became shorter while it was being copied; copy it again`);
}
