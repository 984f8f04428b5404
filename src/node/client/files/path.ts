import { isUtf8 } from "node:buffer";
import type { CallOptions } from "../grpc/channel.ts";
import { checkText, wholeNumber } from "../arguments.ts";
import { invalidOption } from "../errors/errors.ts";
import type { Names } from "../options.ts";
import { timestampOf } from "../plain.ts";

/** A path in the sandbox. Bytes are for paths that are not UTF-8. */
export type GuestPath = string | Uint8Array;

/**
 * Converts a path to the path fields of single-file requests: text, or bytes if the path is not UTF-8. Older agents
 * support only text.
 */
export function pathFields(path: GuestPath): { readonly path: string; readonly rawPath?: Uint8Array } {
  if (typeof path === "string") {
    checkText(path, "path");
    return { path };
  }
  return isUtf8(path) ? { path: Buffer.from(path).toString() } : { path: "", rawPath: path };
}

/** Converts a path to bytes, the only form that FileTree requests have. */
export function pathBytes(path: GuestPath): Uint8Array {
  if (typeof path !== "string") return path;
  checkText(path, "path");
  return Buffer.from(path);
}

/** Restrictions on a call's paths. */
export interface PlaceOptions extends CallOptions {
  /**
   * A directory that the path must not leave, not even through symbolic links. The path of the call is then relative to
   * this directory. Default: no restriction.
   */
  readonly beneath?: GuestPath | undefined;
  /** Only with `beneath`: fail if the path contains any symbolic link. Default: false. */
  readonly noSymlinks?: boolean | undefined;
}

export const PLACE: Names<PlaceOptions> = {
  signal: true,
  requestTimeoutMs: true,
  waitForReady: true,
  beneath: true,
  noSymlinks: true,
};

/** Converts a path and its restrictions to the fields of FileTree requests. */
export function placeOf(
  path: GuestPath,
  { beneath = "", noSymlinks = false }: PlaceOptions,
): { readonly path: Uint8Array; readonly beneath: Uint8Array; readonly noSymlinks: boolean } {
  return { path: pathBytes(path), beneath: pathBytes(beneath), noSymlinks };
}

/**
 * Converts the options `beneath` and `noSymlinks` to the fields of a request about a single file. Throws GuestError
 * (INVALID_ARGUMENT) if `beneath` is not UTF-8, because such a request has only a text field for that path.
 */
export function beneathFields({ beneath = "", noSymlinks = false }: PlaceOptions): {
  readonly beneath: string;
  readonly noSymlinks: boolean;
} {
  if (typeof beneath !== "string" && !isUtf8(beneath))
    throw invalidOption("beneath", "beneath must be valid UTF-8 in a call for a single file");
  if (typeof beneath === "string") checkText(beneath, "beneath");
  return { beneath: typeof beneath === "string" ? beneath : Buffer.from(beneath).toString(), noSymlinks };
}

/** Drops undefined attributes. Throws GuestError for a value that is not an unsigned 32-bit integer. */
export function numbers(given: Readonly<Record<string, number | undefined>>): Record<string, number> {
  const present = Object.entries(given).filter((field): field is [string, number] => field[1] !== undefined);
  return Object.fromEntries(present.map(([field, value]) => [field, wholeNumber(value, field)]));
}

/** The largest nanosecond part of a time, one less than a second. */
const MOST_NANOS = 999_999_999;

/** Converts a Date to the form of requests. Throws GuestError (INVALID_ARGUMENT) for an invalid Date. */
export function timeField(time: Date, nanos: number | undefined): NonNullable<ReturnType<typeof timestampOf>> {
  if (nanos !== undefined) wholeNumber(nanos, "mtimeNanos", MOST_NANOS);
  const field = timestampOf(time, nanos);
  if (field === undefined) throw invalidOption("mtime", "mtime is not a valid time");
  return field;
}

/** Drops the fields that are undefined. */
export function defined<Fields extends object>(fields: Fields): { [Name in keyof Fields]?: NonNullable<Fields[Name]> } {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as { [Name in keyof Fields]?: NonNullable<Fields[Name]> };
}
