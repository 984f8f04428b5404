import type { Hash } from "node:crypto";
import type { FileOwner } from "../attributes.ts";
import { type Incoming, type LentBytes, FileSystemError } from "../../domain/index.ts";
import type { FileTree } from "../paths/file-system.ts";
import type { NewFile } from "./new-file.ts";
import { folderOf, SLASH, splitPath } from "../paths/names.ts";
import { ownerInFolder, ownerOf, Parents } from "../new-folders.ts";
import { Content, type ContentParts, type WriteResult } from "./content.ts";
import { ENTRY, packEntries } from "../tree/batch.ts";
import type { WriteRequest } from "./requests.ts";
import { alreadyExists, findTarget, type Target } from "./target.ts";

const DEFAULT_MODE = 0o644;
/** A larger file is written while it comes. */
const SMALL_BYTES = 64 * 1024;

/** What one transfer needs. */
export interface WriteParts {
  readonly fileSystem: FileTree;
  readonly request: WriteRequest;
  readonly input: Incoming<LentBytes>;
  /** Files that are being written now, this one included. */
  readonly writers: () => number;
  /** Owner of new files. */
  readonly newFileOwner: () => Promise<FileOwner>;
  /** Called for every piece. */
  readonly onProgress: () => void;
  /** Its reason is thrown once it is aborted. */
  readonly signal: AbortSignal;
}

/** Writes a file completely and puts it in place, or changes nothing. Throws AgentError or FileSystemError. */
export async function writeAtomically(parts: WriteParts): Promise<WriteResult> {
  const { sizeBytes, sparse } = parts.request;
  if (sizeBytes === undefined || sizeBytes > SMALL_BYTES || sparse) return writeStepwise(parts);
  const content = new SmallContent(!parts.request.skipSha256);
  const result = await receive(content, parts);
  return (await placeSmall(parts, content.bytes)) ? result : writeStepwise({ ...parts, input: content.again });
}

async function writeStepwise(parts: WriteParts): Promise<WriteResult> {
  const { fileSystem, request } = parts;
  const target = await findTarget(fileSystem, request);
  const owner = await ownerOf(request, () => target.existing ?? parts.newFileOwner());
  const inherits = request.gid === undefined && target.existing === undefined;
  const parents = new Parents(fileSystem);
  try {
    const folder = folderOf(target.path);
    if (request.createParents) await parents.make(folder, owner, inherits);
    return await writeTo(parts, target, inherits ? await ownerInFolder(fileSystem, folder, owner) : owner);
  } catch (error) {
    await parents.takeBack();
    throw error;
  }
}

async function writeTo(parts: WriteParts, { path, existing }: Target, owner: FileOwner): Promise<WriteResult> {
  const { fileSystem, request, signal } = parts;
  const { sparse, skipSha256 } = request;
  const file = await fileSystem.create(folderOf(path), { sparse, sha256: !skipSha256 });
  try {
    const result = await receive(file, parts);
    await file.setAttributes(owner, request.mode ?? existing?.mode ?? DEFAULT_MODE);
    if (request.modifiedNs !== undefined) await file.setModified(request.modifiedNs);
    await file.sync(signal);
    signal.throwIfAborted();
    await place(file, path, request);
    return result;
  } finally {
    await file.dispose();
  }
}

/** Whether it is in place: most small files are, in half as many steps. Nothing is changed where it is not. */
async function placeSmall(
  { fileSystem, request, newFileOwner, signal }: WriteParts,
  content: Buffer,
): Promise<boolean> {
  const { folder, name } = splitPath(request.path);
  if (name.length === 0 || request.path.at(-1) === SLASH) return false;
  const { uid, gid, mode, modifiedNs, exclusive } = request;
  let file: NewFile;
  try {
    const owner = await ownerOf(request, newFileOwner);
    const given = { hasOwner: uid !== undefined, hasGroup: gid !== undefined, hasMode: mode !== undefined };
    const entry = { ...owner, ...given, path: name, type: ENTRY.file, mode: mode ?? DEFAULT_MODE, modifiedNs, content };
    file = await fileSystem.createSmall(folder, packEntries([entry]), exclusive);
  } catch {
    // Such as a link or no file there, or a file system that wants a temporary name. What fails for good fails again.
    return false;
  }
  try {
    await file.sync(signal);
    signal.throwIfAborted();
    await place(file, request.path, request);
    return true;
  } finally {
    await file.dispose();
  }
}

/** The content of a small file, gathered before its file is made. */
class SmallContent {
  bytes: Buffer = Buffer.alloc(0);
  readonly #hash: Hash | undefined;

  constructor(hashes: boolean) {
    if (hashes) this.#hash = process.getBuiltinModule("node:crypto").createHash("sha256");
  }

  /** Gives it once more. */
  readonly again: Incoming<LentBytes> = (take, over) => {
    void Promise.resolve(take({ bytes: this.bytes, release: () => {} })).then(() => over(undefined));
  };

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
      // What follows a failed write is not taken: the call ends.
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
    // The file may not be closed while a thread writes to it.
    await content.settled();
  }
}

async function place(file: NewFile, path: Uint8Array, request: WriteRequest): Promise<void> {
  try {
    await file.place(path, request.exclusive);
  } catch (error) {
    const taken = error instanceof FileSystemError && error.errno === "EEXIST";
    throw taken ? alreadyExists(request) : error;
  }
}
