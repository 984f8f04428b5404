import {
  type Incoming,
  type BorrowedBytes,
  type ActivityClock,
  BufferPool,
  type Caller,
  type Clock,
  CONNECTION_FILE_CALL_LIMIT,
  FILE_CALL_LIMIT,
} from "../../domain/index.ts";
import { CallSlots } from "./call-slots.ts";
import { checkFilePath, type FileLocation, inTree, wholePath } from "./location.ts";
import type { FileAttributes, FileOwner } from "../attributes.ts";
import { Leftovers } from "../entries/leftovers.ts";
import type { FileSystem } from "../open/file-system.ts";
import { wrongType } from "./failure.ts";
import type { WriteResult } from "./content.ts";
import { FILE_BUFFERS, type HoleOutput, readChunks, type ReadOutput } from "./read.ts";
import { checkReadRequest, checkWriteRequest, type ReadRequest, type WriteRequest } from "./file-requests.ts";
import { writeAtomically } from "./write.ts";

export interface FilesParts {
  readonly fileSystem: FileSystem;
  readonly activity: ActivityClock;
  readonly clock: Pick<Clock, "monotonicMs">;
  /** Returns the owner of new files. */
  readonly newFileOwner: () => Promise<FileOwner>;
}

export interface PathReport {
  readonly attributes: FileAttributes;
  /** Target of the link, if the path is a symbolic link that was not followed. */
  readonly linkTarget: Uint8Array | undefined;
}

/** Functions that receive the content of a file that is read. */
export interface ReadOutputs {
  readonly output: ReadOutput;
  /** Called only if the request has `holes`. */
  readonly hole: HoleOutput;
}

/** Reads, writes and stats files of the guest with the agent's own privileges. Every method throws AgentError. */
export class Files {
  readonly #parts: FilesParts;
  readonly #buffers = new BufferPool(FILE_BUFFERS);
  readonly #writing = new Set<Promise<WriteResult>>();
  readonly #places: CallSlots;
  readonly #leftovers = new Leftovers();

  constructor(parts: FilesParts) {
    this.#parts = parts;
    this.#places = new CallSlots({
      calls: "file calls",
      limit: FILE_CALL_LIMIT,
      connectionLimit: CONNECTION_FILE_CALL_LIMIT,
      ...parts,
    });
  }

  /** Reads a range of a regular file. Resolves when all of it was passed to `output` and `hole`. */
  async read(request: ReadRequest, { output, hole }: ReadOutputs, caller: Caller): Promise<void> {
    checkReadRequest(request);
    const { signal } = caller;
    await this.#places.run(caller, (onProgress, place) => {
      const active: ReadOutput = (bytes, attributes, release) => {
        onProgress();
        output(bytes, attributes, () => {
          place.progress();
          release();
        });
      };
      const activeHole: HoleOutput = async (sizeBytes, attributes) => {
        onProgress();
        await hole(sizeBytes, attributes);
        place.progress();
      };
      return inTree(this.#parts.fileSystem, "read", request, async (tree) => {
        const file = await tree.openRegular(request.path);
        if ("notRegular" in file) throw wrongType("read", wholePath(request), file.notRegular, "regular file");
        const leave = this.#buffers.enter();
        try {
          const outputs = { output: active, hole: request.holes ? activeHole : undefined };
          await readChunks({ file, request, buffers: this.#buffers, ...outputs, signal });
        } finally {
          leave();
          await file.close();
        }
      });
    });
  }

  /**
   * Creates or replaces a file atomically, once all of the content has arrived and was verified and synced to disk. A
   * failed write changes nothing.
   */
  async write(request: WriteRequest, input: Incoming<BorrowedBytes>, caller: Caller): Promise<WriteResult> {
    checkWriteRequest(request);
    const { newFileOwner } = this.#parts;
    const { signal } = caller;
    const leftovers = this.#leftovers;
    const writers = (): number => this.#writing.size;
    return this.#places.run(caller, async (onProgress) => {
      const writing = inTree(this.#parts.fileSystem, "write", request, async (tree) =>
        writeAtomically({ tree, leftovers, request, input, writers, newFileOwner, onProgress, signal }),
      );
      this.#writing.add(writing);
      try {
        return await writing;
      } finally {
        this.#writing.delete(writing);
      }
    });
  }

  /** Returns the attributes of a path. With `noFollow`, a symbolic link is described, not its target. */
  async stat(location: FileLocation, noFollow: boolean): Promise<PathReport> {
    checkFilePath(location);
    const { path } = location;
    return inTree(this.#parts.fileSystem, "stat", location, async (tree) => {
      const attributes = await tree.stat(path, noFollow);
      return { attributes, linkTarget: attributes.type === "symlink" ? await tree.readLink(path) : undefined };
    });
  }

  /** Resolves when no write is running and aborted writes have removed their temporary files. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#writing);
  }
}
