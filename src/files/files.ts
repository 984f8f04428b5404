import {
  type ActivityClock,
  checkFilePath,
  checkReadRequest,
  checkWriteRequest,
  type FileAction,
  type FileAttributes,
  fileFailure,
  type FileLocation,
  type FileOwner,
  type FileSystem,
  FileSystemError,
  type FileTree,
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
    const { activity } = this.#parts;
    activity.touch();
    const active: ReadOutput = {
      chunk: (bytes, attributes, release) => {
        activity.touch();
        output.chunk(bytes, attributes, release);
      },
    };
    await this.#at("read", request, async (tree, path) => {
      const file = await tree.openRegular(path);
      if ("notRegular" in file) throw notARegularFile("read", request.path, file.notRegular);
      const leave = this.#buffers.enter();
      try {
        await readChunks({ file, request, buffers: this.#buffers, output: active, signal });
      } finally {
        leave();
        await file.close();
        activity.touch();
      }
    });
  }

  /**
   * Replaces or creates a file in one step, once all of its content has come, is what was declared and is on the disk.
   * On any failure nothing has changed.
   */
  async write(request: WriteRequest, data: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<WriteResult> {
    checkWriteRequest(request);
    const { activity, newFileOwner } = this.#parts;
    const onProgress = (): void => activity.touch();
    onProgress();
    const writing = this.#at("write", request, async (fileSystem) =>
      writeAtomically({ fileSystem, request, data, newFileOwner, onProgress, signal }),
    );
    this.#writing.add(writing);
    try {
      return await writing;
    } finally {
      this.#writing.delete(writing);
      onProgress();
    }
  }

  /** Describes a path; with `noFollow` a symbolic link itself. */
  async stat(location: FileLocation, noFollow: boolean): Promise<PathReport> {
    checkFilePath(location);
    return this.#at("stat", location, async (tree, path) => {
      const attributes = await tree.stat(path, noFollow);
      return { attributes, linkTarget: attributes.type === "symlink" ? await tree.readLink(path) : undefined };
    });
  }

  /** Runs something in the part of the file system that the location names. */
  async #at<Value>(
    action: FileAction,
    { path, beneath, noSymlinks }: FileLocation,
    run: (tree: FileTree, path: Uint8Array) => Promise<Value>,
  ): Promise<Value> {
    const { fileSystem } = this.#parts;
    const inTree = (tree: FileTree): Promise<Value> => translated(action, path, () => run(tree, Buffer.from(path)));
    if (beneath === "") return inTree(fileSystem);
    await using view = await translated(action, beneath, () => fileSystem.beneath(Buffer.from(beneath), noSymlinks));
    return await inTree(view);
  }

  /** Resolves when no write is in progress: those that were aborted have removed what they left. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#writing);
  }
}

/** Runs something with a path; what fails is told with the path that it failed at. */
async function translated<Value>(action: FileAction, path: string, run: () => Promise<Value>): Promise<Value> {
  try {
    return await run();
  } catch (error) {
    throw error instanceof FileSystemError ? fileFailure(error, action, path) : error;
  }
}
