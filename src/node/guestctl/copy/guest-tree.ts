import { posix } from "node:path";
import { Readable } from "node:stream";
import { messageOf } from "../../../shared/errors.ts";
import {
  type FileAttributes,
  type FileStat,
  type FileType,
  type GuestClient,
  GuestError,
  type TreeEntry,
} from "../../client/index.ts";
import {
  EntryError,
  isCleanName,
  secondsNotBefore,
  TarError,
  type TarEntry,
  type TarType,
  whole,
  withoutExcluded,
  withZeros,
} from "../../tar/index.ts";
import { CliError, nameOf } from "../cli/index.ts";
import { isGenerated } from "./guest-paths.ts";
import { type CopyOptions, type CopyReport, errnoWords, NOT_COPIED } from "./report.ts";
import { sourceFailure } from "./source-failure.ts";

/** The entry's type in an archive; undefined if it cannot be copied. */
export function tarTypeOf(type: FileType): TarType | undefined {
  return type === "file" || type === "directory" || type === "symlink" ? type : undefined;
}

/** The errno that corresponds to each reason. Agents before 0.3.0 send only the reason. */
const ERRNOS: ReadonlyMap<string, string> = new Map([
  ["PATH_NOT_FOUND", "ENOENT"],
  ["PATH_PERMISSION_DENIED", "EACCES"],
]);
const NONE = Buffer.alloc(0);
const NS_PER_SECOND = 1_000_000_000n;

/** Parameters of the functions that read a directory tree of the sandbox. */
export interface TreeParts {
  readonly client: GuestClient;
  readonly report: Pick<CopyReport, "skip" | "skipUnnamed">;
  readonly options: Pick<CopyOptions, "exclude" | "oneFileSystem" | "followLinks">;
  /** Called with the size of each chunk of content. */
  readonly onBytes: (bytes: number) => void;
}

/**
 * Reads a directory of the sandbox entry by entry, beginning with the directory itself, whose name is empty. This is
 * needed for agents that have no call for trees, and for files that the kernel generates, whose size is only known
 * after reading them. Skips everything except files, directories and symlinks.
 */
export function guestTree(parts: TreeParts, remote: string): AsyncIterable<TarEntry> {
  return withoutExcluded(wholeGuestTree(parts, remote), parts.options.exclude);
}

async function* wholeGuestTree(parts: TreeParts, remote: string): AsyncIterable<TarEntry> {
  const { client, report, options } = parts;
  const top = await client.files.stat(nameOf(remote));
  yield { ...headOf("directory", NONE, top), content: Readable.from([]) };
  const listing = { recursive: true, crossMounts: !options.oneFileSystem };
  for await (const entry of client.files.opendir(nameOf(remote), listing)) {
    if (!isCleanName(entry.rawName))
      throw new TarError(
        `the sandbox's answer has the name ${JSON.stringify(entry.name)}, which no directory entry can have`,
      );
    const type = tarTypeOf(entry.type);
    const path = `:${posix.join(remote, entry.name)}`;
    if (entry.errno !== undefined) report.skip(path, errnoWords(entry.errno));
    else if (type === undefined) report.skip(path, NOT_COPIED);
    if (type === undefined || entry.size === undefined) continue;
    const head = headOf(type, entry.rawName, entry);
    if (type === "file" && isGenerated(posix.join(remote, entry.name))) yield* generated(parts, path, head);
    else yield { ...head, content: type === "file" ? contentOf(parts, remote, entry) : Readable.from([]) };
  }
}

/** The tar header of an entry, without its content. */
export function headOf(
  type: TarType,
  name: Buffer,
  attributes: FileAttributes | Omit<TreeEntry, "content" | "pieces">,
): Omit<TarEntry, "content"> {
  const { mode, uid, gid, size, mtime, mtimeNanos, mtimeSeconds: outOfDate, linkTarget = NONE } = attributes;
  // A Date has only milliseconds; the nanoseconds are separate.
  const seconds = outOfDate ?? Math.floor((mtime?.getTime() ?? 0) / 1_000);
  const mtimeNs = BigInt(seconds) * NS_PER_SECOND + BigInt(mtimeNanos);
  const mtimeSeconds = secondsNotBefore(mtimeNs);
  return { type, name, linkTarget, mode, uid, gid, size: type === "file" ? size : 0, mtimeSeconds, mtimeNs };
}

/** Converts the entries of a tree to those of an archive. */
export async function* archiveEntries(entries: AsyncIterable<TreeEntry>): AsyncGenerator<TarEntry> {
  for await (const entry of entries) {
    const { content, pieces, readAll } = entry;
    yield { ...headOf(entry.type, entry.rawName, entry), content, pieces, readAll };
  }
}

/** Limit on the size of a generated file. A larger file is not text, but for example an image of the kernel's memory. */
const GENERATED_LIMIT_BYTES = 16 * 1024 * 1024;
/** Time limit for reading a generated file, because some, such as /proc/kmsg, never reach EOF. */
const GENERATED_TIMEOUT_MS = 5_000;

/** Reads a file that the kernel generates, whose size is only known after reading it. Skips a file that cannot be read. */
export async function* generated(
  { client, report, onBytes }: TreeParts,
  path: string,
  head: Omit<TarEntry, "content">,
): AsyncGenerator<TarEntry> {
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  try {
    for await (const chunk of client.files.createReadStream(nameOf(path.slice(1)), {
      requestTimeoutMs: GENERATED_TIMEOUT_MS,
    })) {
      sizeBytes += chunk.length;
      if (sizeBytes > GENERATED_LIMIT_BYTES)
        throw new CliError(`the file has more than ${GENERATED_LIMIT_BYTES} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    report.skip(path, messageOf(error));
    return;
  }
  onBytes(sizeBytes);
  yield { ...head, size: sizeBytes, content: Readable.from(chunks.map((chunk) => Buffer.from(chunk))) };
}

/**
 * Reads exactly as many bytes as the file had when it was listed. Follows no symlinks, because the agent reads with its
 * own privileges, and the directory's owner could have replaced the file by a symlink. Throws EntryError for a file
 * that became shorter, is gone or cannot be read, and TarError for an answer with more bytes.
 */
export async function* contentOf(
  { client, onBytes }: TreeParts,
  remote: string,
  { rawName, name, size: sizeBytes }: Pick<FileStat, "rawName" | "name" | "size">,
): AsyncGenerator<Buffer> {
  if (sizeBytes === 0) return;
  const how = { length: sizeBytes, beneath: nameOf(remote), noSymlinks: true };
  const content = withZeros(client.files.readPieces(rawName, how));
  try {
    yield* whole<Buffer>(content, sizeBytes, posix.join(remote, name), onBytes);
  } catch (error) {
    if (!(error instanceof GuestError) || sourceFailure(error) === undefined) throw error;
    throw new EntryError(error.metadata["errno"] ?? ERRNOS.get(error.code) ?? "EIO", error.message, { cause: error });
  }
}
