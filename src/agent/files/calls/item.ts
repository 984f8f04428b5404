import { AgentError, invalidField } from "../../domain/index.ts";
import type { FilePath, FileType } from "../attributes.ts";
import { checkAttributes, pathText } from "./location.ts";
import { isReservedName, SLASH } from "../open/names.ts";

/** Largest number of failures that an answer lists with their names. Further failures are only counted. */
const NAMED_LIMIT = 100;
/** Longest path: PATH_MAX without its NUL. */
const PATH_LIMIT_BYTES = 4_095;
/** Largest size of a file in a tree: Node cannot write at larger offsets. */
export const MAX_SIZE_BYTES: bigint = BigInt(Number.MAX_SAFE_INTEGER);

/** An item of a tree, decoded (message TreeItem). */
export interface TreeItem {
  readonly path: FilePath;
  readonly type: FileType;
  readonly mode?: number | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly modifiedNs: bigint | undefined;
  readonly sizeBytes: bigint;
  readonly data: Uint8Array;
  readonly linkTarget: Uint8Array;
  readonly sparse: boolean;
}

/** An entry that could not be written, read or removed, with the errno. */
export interface FailedEntry {
  /** Path relative to the directory of the call. */
  readonly name: FilePath;
  readonly errno: string;
}

/** Collects failed entries: their number, the names of the first 100, and the entries that were not reported yet. */
export class Failures {
  readonly first: FailedEntry[] = [];
  #count = 0n;
  #unreported: FailedEntry[] = [];
  readonly #isStreamed: boolean;

  /** @param isStreamed whether the call reports each failure when it happens */
  constructor(isStreamed: boolean) {
    this.#isStreamed = isStreamed;
  }

  get count(): bigint {
    return this.#count;
  }

  add(name: FilePath, errno: string): void {
    this.#count += 1n;
    // Copies the name, because it is a view into a message whose memory is reused.
    const entry = { name: Uint8Array.from(name), errno };
    if (this.first.length < NAMED_LIMIT) this.first.push(entry);
    if (this.#isStreamed) this.#unreported.push(entry);
  }

  get unreported(): number {
    return this.#unreported.length;
  }

  /** Returns the entries that failed since the last call. */
  takeUnreported(): readonly FailedEntry[] {
    const taken = this.#unreported;
    this.#unreported = [];
    return taken;
  }
}

/** Throws INVALID_ARGUMENT for an item that no tree can have. The caller then writes no item of the message. */
export function checkItem(item: TreeItem): void {
  const { path, type, sizeBytes, data, linkTarget } = item;
  if (!isInside(path))
    throw invalidField(
      "items.path",
      `is ${JSON.stringify(pathText(path))}: must be a path below the directory, without ".."`,
    );
  const fault = (field: string, problem: string): AgentError =>
    invalidField(`items.${field}`, `of ${JSON.stringify(pathText(path))} ${problem}`);
  if (type !== "regular" && type !== "directory" && type !== "symlink")
    throw fault("type", "must be REGULAR, DIRECTORY or SYMLINK");
  if (type === "symlink" && (linkTarget.length === 0 || linkTarget.includes(0)))
    throw fault("link_target", "must not be empty or contain a NUL byte");
  if (type === "regular" && linkTarget.length > 0 && !isInside(linkTarget))
    throw fault("link_target", "must be a path below the directory");
  checkAttributes(item, fault);
  if (sizeBytes > MAX_SIZE_BYTES) throw fault("size", "exceeds 2^53 - 1");
  if (BigInt(data.length) > sizeBytes) throw fault("size", "is smaller than the data of the entry");
}

/** Whether a path names an entry below the directory: relative, without "." or "..", and not too long. */
function isInside(path: FilePath): boolean {
  if (path.length > PATH_LIMIT_BYTES || path.includes(0)) return false;
  for (let start = 0; start <= path.length;) {
    const slash = path.indexOf(SLASH, start);
    const end = slash < 0 ? path.length : slash;
    if (isReservedName(path.subarray(start, end))) return false;
    start = end + 1;
  }
  return true;
}

/** The error if the client sent a hole for a file whose item does not set `sparse`. */
export function notSparse({ path }: TreeItem): AgentError {
  return invalidField(
    "hole",
    `was sent for ${JSON.stringify(pathText(path))}, but the tree item that began this file does not set \`sparse\``,
  );
}

export function tooLong({ path, sizeBytes }: TreeItem): AgentError {
  const message = `received more bytes of ${JSON.stringify(pathText(path))} than the declared ${sizeBytes}`;
  return new AgentError("DATA_LOSS", "SIZE_MISMATCH", message, { path: pathText(path), declared: String(sizeBytes) });
}

export function tooShort({ path, sizeBytes }: TreeItem, leftBytes: bigint): AgentError {
  const received = sizeBytes - leftBytes;
  const message = `received only ${received} of ${sizeBytes} bytes of ${JSON.stringify(pathText(path))}; it was not written`;
  const metadata = { path: pathText(path), declared: String(sizeBytes), received: String(received) };
  return new AgentError("DATA_LOSS", "SIZE_MISMATCH", message, metadata);
}
