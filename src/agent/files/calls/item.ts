import { AgentError, invalidField } from "../../domain/index.ts";
import type { FilePath, FileType } from "../attributes.ts";
import { checkAttributes, pathText } from "./location.ts";
import { isNoName, SLASH } from "../open/names.ts";

/** Failures that an answer names. */
const NAMED_LIMIT = 100;
/** Longest path of an item: PATH_MAX. */
const PATH_LIMIT_BYTES = 4_095;
/** Of what Node can write. */
export const MAX_SIZE_BYTES: bigint = BigInt(Number.MAX_SAFE_INTEGER);

/** An item as it comes (message TreeItem). */
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

/** An entry that could not be written, read or removed, and why. */
export interface LeftEntry {
  /** Its path from the call's folder on. */
  readonly name: FilePath;
  readonly errno: string;
}

/** Entries that failed: how many, the first of them by name, and those that are not reported yet. */
export class Failures {
  readonly first: LeftEntry[] = [];
  #count = 0n;
  #unreported: LeftEntry[] = [];
  readonly #isStreamed: boolean;

  /** @param isStreamed the call reports each failure when it happens */
  constructor(isStreamed: boolean) {
    this.#isStreamed = isStreamed;
  }

  get count(): bigint {
    return this.#count;
  }

  add(name: FilePath, errno: string): void {
    this.#count += 1n;
    // A path is a view of a message.
    const entry = { name: Uint8Array.from(name), errno };
    if (this.first.length < NAMED_LIMIT) this.first.push(entry);
    if (this.#isStreamed) this.#unreported.push(entry);
  }

  /** Number of entries that wait to be reported. */
  get unreported(): number {
    return this.#unreported.length;
  }

  /** Those that failed since the last call. */
  takeUnreported(): readonly LeftEntry[] {
    const taken = this.#unreported;
    this.#unreported = [];
    return taken;
  }
}

/** Throws INVALID_ARGUMENT for an item that no tree has: nothing of its message is written then. */
export function checkItem(item: TreeItem): void {
  const { path, type, sizeBytes, data, linkTarget } = item;
  if (!isInside(path))
    throw invalidField(
      "items.path",
      `is ${JSON.stringify(pathText(path))}: give a path below the folder, without ".."`,
    );
  const fault = (field: string, problem: string): AgentError =>
    invalidField(`items.${field}`, `of ${JSON.stringify(pathText(path))} ${problem}`);
  if (type !== "regular" && type !== "directory" && type !== "symlink")
    throw fault("type", "is none of REGULAR, DIRECTORY and SYMLINK");
  if (type === "symlink" && (linkTarget.length === 0 || linkTarget.includes(0)))
    throw fault("link_target", "is empty or holds a NUL");
  if (type === "regular" && linkTarget.length > 0 && !isInside(linkTarget))
    throw fault("link_target", "is no path below the folder");
  checkAttributes(item, fault);
  if (sizeBytes > MAX_SIZE_BYTES) throw fault("size", "is larger than 2^53 - 1");
  if (BigInt(data.length) > sizeBytes) throw fault("size", "is less than its data");
}

/** Whether a path leads to a name below the folder: relative, without "..", and short enough. It has one form. */
function isInside(path: FilePath): boolean {
  if (path.length > PATH_LIMIT_BYTES || path.includes(0)) return false;
  for (let start = 0; start <= path.length;) {
    const slash = path.indexOf(SLASH, start);
    const end = slash < 0 ? path.length : slash;
    if (isNoName(path.subarray(start, end))) return false;
    start = end + 1;
  }
  return true;
}

/** A hole of a file that is not written with holes. */
export function notSparse({ path }: TreeItem): AgentError {
  return invalidField("hole", `is of ${JSON.stringify(pathText(path))}, whose item does not say sparse`);
}

/** More bytes came of a file than it was to have. */
export function tooLong({ path, sizeBytes }: TreeItem): AgentError {
  const message = `more bytes came of ${JSON.stringify(pathText(path))} than its ${sizeBytes}`;
  return new AgentError("DATA_LOSS", "SIZE_MISMATCH", message, { path: pathText(path), declared: String(sizeBytes) });
}

/** Fewer bytes came of a file than it was to have. */
export function tooShort({ path, sizeBytes }: TreeItem, leftBytes: bigint): AgentError {
  const received = sizeBytes - leftBytes;
  const message = `only ${received} bytes came of ${JSON.stringify(pathText(path))}, which has ${sizeBytes}; it is not written`;
  const metadata = { path: pathText(path), declared: String(sizeBytes), received: String(received) };
  return new AgentError("DATA_LOSS", "SIZE_MISMATCH", message, metadata);
}
