import { isUtf8 } from "node:buffer";

/** A path in the sandbox. Bytes are for one that is not UTF-8: names need not be. */
export type GuestPath = string | Uint8Array;

/** The path as file requests have it: text, or bytes if it is not UTF-8. An older agent knows only text. */
export function pathFields(path: GuestPath): { readonly path: string; readonly rawPath?: Uint8Array } {
  if (typeof path === "string") return { path };
  return isUtf8(path) ? { path: Buffer.from(path).toString() } : { path: "", rawPath: path };
}

/** The path as folder requests have it. */
export function pathBytes(path: GuestPath): Uint8Array {
  return typeof path === "string" ? Buffer.from(path) : path;
}
