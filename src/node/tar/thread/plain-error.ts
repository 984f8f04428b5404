import { EntryError } from "../entry-error.ts";
import { TarError } from "../format.ts";
import { UnpackError } from "../unpack-error.ts";

/** An error as data: structured clones of errors lose their class and all properties except the message. */
export interface PlainError {
  readonly type: "EntryError" | "UnpackError" | "TarError" | "Error";
  readonly message: string;
  /** Name of the errno of an EntryError. */
  readonly errno?: string | undefined;
  /** Properties of a failed system call. */
  readonly call?: { readonly [name: string]: string | number } | undefined;
  readonly cause?: PlainError | undefined;
}

const CALL = ["code", "errno", "syscall", "path", "dest"] as const;

export function plainError(error: unknown): PlainError {
  if (!(error instanceof Error)) return { type: "Error", message: String(error) };
  const { message } = error;
  const cause = error.cause === undefined ? undefined : plainError(error.cause);
  if (error instanceof EntryError)
    return { type: error instanceof UnpackError ? "UnpackError" : "EntryError", message, errno: error.errno, cause };
  if (error instanceof TarError) return { type: "TarError", message, cause };
  const call: Record<string, string | number> = {};
  for (const name of CALL) {
    const value = (error as NodeJS.ErrnoException & { readonly dest?: string })[name];
    if (typeof value === "string" || typeof value === "number") call[name] = value;
  }
  return { type: "Error", message, call, cause };
}

export function errorOf({ type, message, errno = "EIO", call, cause }: PlainError): Error {
  const options = cause === undefined ? undefined : { cause: errorOf(cause) };
  if (type === "UnpackError") return new UnpackError(errno, message, options);
  if (type === "EntryError") return new EntryError(errno, message, options);
  if (type === "TarError") return new TarError(message, options);
  return Object.assign(new Error(message, options), call);
}
