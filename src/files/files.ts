import {
  type ActivityClock,
  checkFilePath,
  checkReadRequest,
  checkWriteRequest,
  type FileAction,
  type FileAttributes,
  fileFailure,
  type FileOwner,
  type FileSystem,
  FileSystemError,
  notARegularFile,
  type ReadRequest,
  type WriteRequest,
} from "../domain/index.ts";
import { ChunkBuffers } from "./chunk-buffers.ts";
import type { WriteResult } from "./content.ts";
import { type ReadOutput, readChunks } from "./read.ts";
import { writeAtomically } from "./write.ts";

/** What the files capability needs. */
export interface FilesParts {
  readonly fileSystem: FileSystem;
  readonly activity: ActivityClock;
  /** Who new files belong to. */
  readonly newFileOwner: () => Promise<FileOwner>;
}

/** What StatPath tells. */
export interface PathReport {
  readonly attributes: FileAttributes;
  /** Of a symbolic link that was not followed. */
  readonly linkTarget: Uint8Array | undefined;
}

/** Reads, writes and describes files of the guest, with the agent's own rights. Everything throws AgentError. */
export class Files {
  readonly #parts: FilesParts;
  readonly #buffers = new ChunkBuffers();
  readonly #writing = new Set<Promise<WriteResult>>();

  constructor(parts: FilesParts) {
    this.#parts = parts;
  }

  /** Reads a regular file to its end, or a part of it. Resolves when all of it has been handed to `output`. */
  async read(request: ReadRequest, output: ReadOutput, signal: AbortSignal): Promise<void> {
    checkReadRequest(request);
    const { activity, fileSystem } = this.#parts;
    activity.touch();
    const active: ReadOutput = {
      chunk: (bytes, attributes, release) => {
        activity.touch();
        output.chunk(bytes, attributes, release);
      },
    };
    await translated("read", request.path, async () => {
      const file = await fileSystem.openRegular(Buffer.from(request.path));
      if ("notRegular" in file) throw notARegularFile("read", request.path, file.notRegular);
      const leave = this.#buffers.enter();
      try {
        await readChunks({ file, request, buffers: this.#buffers, output: active, signal });
      } finally {
        leave();
        await file.close();
        if (!signal.aborted) activity.touch();
      }
    });
  }

  /**
   * Replaces or creates a file in one step, once all of its content has come, is what was declared and is on the disk.
   * On any failure nothing has changed.
   */
  async write(request: WriteRequest, data: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<WriteResult> {
    checkWriteRequest(request);
    const { activity, fileSystem, newFileOwner } = this.#parts;
    const onProgress = (): void => activity.touch();
    onProgress();
    const writing = translated("write", request.path, async () =>
      writeAtomically({ fileSystem, request, data, newFileOwner, onProgress, signal }),
    );
    this.#writing.add(writing);
    try {
      return await writing;
    } finally {
      this.#writing.delete(writing);
      if (!signal.aborted) onProgress();
    }
  }

  /** Describes a path; with `noFollow` a symbolic link itself. */
  async stat(path: string, noFollow: boolean): Promise<PathReport> {
    checkFilePath(path);
    const { fileSystem } = this.#parts;
    const bytes = Buffer.from(path);
    return translated("stat", path, async () => {
      const attributes = await fileSystem.stat(bytes, noFollow);
      return { attributes, linkTarget: attributes.type === "symlink" ? await fileSystem.readLink(bytes) : undefined };
    });
  }

  /** Resolves when no write is in progress: those that were aborted have removed what they left. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#writing);
  }
}

async function translated<Value>(action: FileAction, path: string, run: () => Promise<Value>): Promise<Value> {
  try {
    return await run();
  } catch (error) {
    throw error instanceof FileSystemError ? fileFailure(error, action, path) : error;
  }
}
