import { isUtf8 } from "node:buffer";
import type { CallOptions } from "../channel.ts";
import { checkText } from "../arguments.ts";
import { invalidOption } from "../errors.ts";
import type { Names } from "../options.ts";
import { timestampOf } from "../plain.ts";

/** A path in the sandbox. Bytes are for one that is not UTF-8: names need not be. */
export type GuestPath = string | Uint8Array;

/** The path as file requests have it: text, or bytes if it is not UTF-8. An older agent knows only text. */
export function pathFields(path: GuestPath): { readonly path: string; readonly rawPath?: Uint8Array } {
  if (typeof path === "string") {
    checkText(path, "path");
    return { path };
  }
  return isUtf8(path) ? { path: Buffer.from(path).toString() } : { path: "", rawPath: path };
}

/** The path as folder requests have it. */
export function pathBytes(path: GuestPath): Uint8Array {
  if (typeof path !== "string") return path;
  checkText(path, "path");
  return Buffer.from(path);
}

/** Where a call's paths may lead. */
export interface PlaceOptions extends CallOptions {
  /** A folder that the path may not leave, by no link either; the path is relative then. Default: anywhere. */
  readonly beneath?: GuestPath | undefined;
  /** With `beneath`: the path may go over no symbolic link at all. Default: false. */
  readonly noSymlinks?: boolean | undefined;
}

/** Their names. */
export const PLACE: Names<PlaceOptions> = {
  signal: true,
  timeoutMs: true,
  waitForReady: true,
  beneath: true,
  noSymlinks: true,
};

/** Where a call's path leads, as directory requests have it. */
export function placeOf(
  path: GuestPath,
  { beneath = "", noSymlinks = false }: PlaceOptions,
): { readonly path: Uint8Array; readonly beneath: Uint8Array; readonly noSymlinks: boolean } {
  return { path: pathBytes(path), beneath: pathBytes(beneath), noSymlinks };
}

/** The same as requests of single files have it: text. Throws GuestError (INVALID_ARGUMENT) for another folder. */
export function beneathFields({ beneath = "", noSymlinks = false }: PlaceOptions): {
  readonly beneath: string;
  readonly noSymlinks: boolean;
} {
  if (typeof beneath !== "string" && !isUtf8(beneath))
    throw invalidOption("beneath", "beneath is not UTF-8, which a call about one file cannot say");
  if (typeof beneath === "string") checkText(beneath, "beneath");
  return { beneath: typeof beneath === "string" ? beneath : Buffer.from(beneath).toString(), noSymlinks };
}

/** A time as requests have it. Throws GuestError (INVALID_ARGUMENT) for no valid Date. */
export function timeField(time: Date, nanos: number | undefined): NonNullable<ReturnType<typeof timestampOf>> {
  const field = timestampOf(time, nanos);
  if (field === undefined) throw invalidOption("mtime", "mtime is not a valid time");
  return field;
}

/** The fields that are given. */
export function defined<Fields extends object>(fields: Fields): { [Name in keyof Fields]?: NonNullable<Fields[Name]> } {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as { [Name in keyof Fields]?: NonNullable<Fields[Name]> };
}
