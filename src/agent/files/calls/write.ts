import type { Hash } from "node:crypto";
import { FileSystemError, type Incoming, type BorrowedBytes } from "../../domain/index.ts";
import type { FileOwner, FilePath } from "../attributes.ts";
import { CreatedDirectories, ownerOf } from "../entries/created-directories.ts";
import type { Leftovers } from "../entries/leftovers.ts";
import { createFile, createSmallFile, type NewFile } from "../entries/new-file.ts";
import type { FileTree } from "../open/file-system.ts";
import { dirname, SLASH, splitPath } from "../open/names.ts";
import { Content, type ContentParts, type WriteResult } from "./content.ts";
import type { WriteRequest } from "./file-requests.ts";
import { alreadyExists, findTarget } from "./target.ts";

/** Content up to this size is collected before the file is created. Larger content is written as it arrives. */
const SMALL_BYTES = 64 * 1024;

export interface WriteParts {
  readonly tree: FileTree;
  readonly leftovers: Leftovers;
  readonly request: WriteRequest;
  readonly input: Incoming<BorrowedBytes>;
  /** Returns how many files are being written now, including the file of this call. */
  readonly writers: () => number;
  /** Returns the owner that the file gets if the request names none. */
  readonly newFileOwner: () => Promise<FileOwner>;
  /** Called for each piece of the content. */
  readonly onProgress: () => void;
  /** When this signal is aborted, the write fails with the signal's reason. */
  readonly signal: AbortSignal;
}

/** Writes a file completely and renames it into place, or changes nothing. Throws AgentError or FileSystemError. */
export async function writeAtomically(parts: WriteParts): Promise<WriteResult> {
  const { sizeBytes, sparse, skipSha256, path } = parts.request;
  if (sizeBytes === undefined || sizeBytes > SMALL_BYTES || sparse)
    return writeStepwise(parts, undefined, (file) => receive(file, parts));
  const content = new SmallContent(!skipSha256);
  const result = await receive(content, parts);
  const made = await createAtOnce(parts, content.bytes);
  if (made === undefined) return writeStepwise(parts, content.bytes, () => Promise.resolve(result));
  try {
    await commit(parts, made.file, path, made.owner, result);
    return result;
  } finally {
    await made.file.dispose();
  }
}

/** Resolves the path, creates missing directories, and writes the file there. */
async function writeStepwise(
  parts: WriteParts,
  content: Uint8Array | undefined,
  fill: (file: NewFile) => Promise<WriteResult>,
): Promise<WriteResult> {
  const { tree, request, leftovers, newFileOwner } = parts;
  const { path, existing } = await findTarget(tree, request);
  const owner = await ownerOf(request, () => existing ?? newFileOwner());
  const created = new CreatedDirectories(tree);
  try {
    const directory = dirname(path);
    const { uid, gid, createParents, sparse, skipSha256 } = request;
    if (createParents) await created.make(directory, { uid, gid, owner });
    const options = { sparse, sha256: !skipSha256 };
    const file = await createFile(await tree.openDirectory("create", directory, "change"), leftovers, options, content);
    try {
      const result = await fill(file);
      await commit(parts, file, path, owner, result);
      return result;
    } finally {
      await file.dispose();
    }
  } catch (error) {
    await created.rollback();
    throw error;
  }
}

/**
 * Fast path for small files: half as many steps as writeStepwise(). If it fails, it changes nothing and returns
 * undefined.
 */
async function createAtOnce(
  { tree, request, newFileOwner }: WriteParts,
  content: Buffer,
): Promise<{ readonly file: NewFile; readonly owner: FileOwner } | undefined> {
  const { directory, name } = splitPath(request.path);
  if (name.length === 0 || request.path.at(-1) === SLASH) return undefined;
  try {
    const owner = await ownerOf(request, newFileOwner);
    const above = await tree.openDirectory("create", directory, "change");
    return { file: await createSmallFile(above, name, content, request.exclusive), owner };
  } catch {
    // The slow path handles links, directories and file systems that require a temporary name. It also reports any
    // other failure.
    return undefined;
  }
}

async function commit(
  { request, signal }: WriteParts,
  file: NewFile,
  path: FilePath,
  owner: FileOwner,
  { bytesWritten }: WriteResult,
): Promise<void> {
  const { mode, uid, gid, modifiedNs, exclusive } = request;
  const { name } = splitPath(path);
  const entry = { path: name, mode, uid, gid, owner, modifiedNs, sizeBytes: bytesWritten };
  try {
    await file.commit(entry, { exclusive, syncs: true, signal });
  } catch (error) {
    const taken = error instanceof FileSystemError && error.errno === "EEXIST";
    throw taken ? alreadyExists(request) : error;
  }
}

/** Collects the content of a small file before the file is created. */
class SmallContent {
  bytes: Buffer = Buffer.alloc(0);
  readonly #hash: Hash | undefined;

  constructor(hashes: boolean) {
    if (hashes) this.#hash = process.getBuiltinModule("node:crypto").createHash("sha256");
  }

  write(pieces: readonly Uint8Array[]): Promise<void> {
    this.bytes = Buffer.concat([this.bytes, ...pieces]);
    return Promise.resolve();
  }

  sha256(): Buffer | undefined {
    return this.#hash?.update(this.bytes).digest();
  }
}

async function receive(
  file: ContentParts["file"],
  { request, input, writers, onProgress }: WriteParts,
): Promise<WriteResult> {
  const content = new Content({ file, expected: request, writers });
  try {
    await new Promise<void>((resolve, reject) => {
      // The returned promise makes the input wait. It never has to settle, because reject() fails the call, and the end
      // of the call also ends the input.
      const failed = (error: Error): Promise<void> => {
        reject(error);
        return new Promise(() => {});
      };
      input(
        (piece) => {
          const busy = content.write(piece);
          if (busy !== undefined) return busy.then(onProgress, failed);
          onProgress();
          return undefined;
        },
        (failure) => {
          if (failure === undefined) resolve();
          else reject(failure);
        },
      );
    });
    return await content.finish();
  } finally {
    // The file must stay open while a thread writes to it.
    await content.settled();
  }
}
