import {
  type ActivityClock,
  BufferPool,
  type Caller,
  type Clock,
  CONNECTION_DIRECTORY_CALL_LIMIT,
  FileSystemError,
  DIRECTORY_CALL_LIMIT,
  invalidField,
} from "../../domain/index.ts";
import { CallSlots } from "./call-slots.ts";
import { checkAttributes, checkFilePath, type FileLocation, inTree, openTree, wholePath } from "./location.ts";
import type { FileAttributes, FileOwner } from "../attributes.ts";
import type { PathReport } from "./files.ts";
import type { Addon } from "../../native/index.ts";
import type { FileSystem, FileTree } from "../open/file-system.ts";
import type { OpenDirectory } from "../open/directory.ts";
import { withoutDots } from "../open/names.ts";
import { mountOf } from "../threads/mounts.ts";
import { attributesOf, CreatedDirectories, ownerOf } from "../entries/created-directories.ts";
import { ListedDirectory } from "../entries/listed-directory.ts";
import { makeDirectory, makeLink, setAttributes } from "../entries/make.ts";
import { LowerLayerDirectory, wrongType } from "./failure.ts";
import { type ListOutput, listTree } from "./list.ts";
import { FILE_BUFFERS } from "./read.ts";
import { temporaryName } from "../entries/leftovers.ts";
import { readTree, type ReadTreeParts, type TreeOutput, type TreeRead } from "./read-tree.ts";
import { type Removal, removeTree } from "./remove.ts";
import {
  type ListRequest,
  type MakeFolderRequest,
  type MakeLinkRequest,
  namedEntry,
  type RemoveRequest,
  type RenameRequest,
  type SetAttributesRequest,
  type WriteTreeRequest,
} from "./tree-requests.ts";
import { type TreeProgress, TreeWriter } from "./write-tree.ts";

export interface DirectoriesParts {
  readonly fileSystem: FileSystem;
  readonly activity: Pick<ActivityClock, "touch">;
  readonly clock: Pick<Clock, "monotonicMs">;
  /** Returns the owner of new directories and links. */
  readonly newFileOwner: () => Promise<FileOwner>;
}

/** Provides the items for a call that writes a tree. */
export interface TreeInput {
  /** Passes every item that the client sends to `writer`. */
  fill(writer: TreeWriter, onProgress: () => void): Promise<void>;
  /** Called repeatedly while the writer finishes the tree, so that new failures can be reported to the client. */
  progressed(writer: TreeWriter): Promise<void>;
}

/** Lists and changes directories of the guest with the agent's own privileges. Every method throws AgentError. */
export class Directories {
  readonly #parts: DirectoriesParts;
  readonly #places: CallSlots;
  readonly #buffers = new BufferPool(FILE_BUFFERS);

  constructor(parts: DirectoriesParts) {
    this.#parts = parts;
    this.#places = new CallSlots({
      calls: "calls of List and Remove",
      limit: DIRECTORY_CALL_LIMIT,
      connectionLimit: CONNECTION_DIRECTORY_CALL_LIMIT,
      ...parts,
    });
  }

  /** Lists a directory. Resolves when the output has taken every entry. */
  async list(request: ListRequest, output: ListOutput, caller: Caller): Promise<void> {
    checkFilePath(request);
    const { clock, fileSystem } = this.#parts;
    const { signal } = caller;
    await this.#places.run(caller, (onProgress) =>
      inTree(fileSystem, "list", request, async (tree) => {
        const top = new ListedDirectory(await openTree(tree, request));
        const taken: ListOutput = async (entries, truncated) => {
          onProgress();
          await output(entries, truncated);
          onProgress();
        };
        await listTree({ top, request, output: taken, clock, signal });
      }),
    );
  }

  /** Creates a directory. Resolves with false if it already exists. */
  async makeFolder(request: MakeFolderRequest): Promise<boolean> {
    checkFilePath(request);
    checkAttributes(request);
    return this.#change("make", request, async (tree) => {
      const created = new CreatedDirectories(tree);
      try {
        const owner = await ownerOf(request, this.#parts.newFileOwner);
        const { directory, name } = namedEntry(request.path, "path");
        const { mode, uid, gid } = request;
        if (request.parents) await created.make(directory, { uid, gid, owner });
        const path = Buffer.concat([directory, Buffer.from("/"), name]);
        await makeDirectory(tree, path, { mode, uid, gid, owner });
        return true;
      } catch (error) {
        if (isErrno(error, "EEXIST") && !request.exclusive) {
          const there = await tree.stat(request.path, false);
          if (there.type === "directory") return false;
          throw wrongType("make", wholePath(request), there.type, "directory");
        }
        await created.rollback();
        throw error;
      }
    });
  }

  /**
   * Writes a tree below a directory. Failures of single entries are in the result. Throws AgentError if the call fails
   * as a whole.
   */
  async writeTree(request: WriteTreeRequest, input: TreeInput, caller: Caller): Promise<TreeProgress> {
    checkFilePath(request);
    const { fileSystem, newFileOwner } = this.#parts;
    const { parents, ...location } = request;
    if (parents) await this.#makeRoot(location);
    return this.#places.run(caller, (onProgress) =>
      inTree(fileSystem, "write", request, async (tree) => {
        await using directory = await openTree(tree, request);
        await using writer = new TreeWriter(directory, request, await newFileOwner(), temporaryName(), caller.signal);
        await input.fill(writer, onProgress);
        return await writer.finish(() => input.progressed(writer));
      }),
    );
  }

  /**
   * Creates the root directory of the tree unless it exists. This is checked first, because makeFolder() rejects a path
   * without a last name ("/", ".."), even if the directory exists.
   */
  async #makeRoot(location: FileLocation): Promise<void> {
    const { path } = location;
    const stat = (tree: FileTree): Promise<FileAttributes | undefined> => attributesOf(tree, path, false);
    if ((await inTree(this.#parts.fileSystem, "write", location, stat)) !== undefined) return;
    await this.makeFolder({ ...location, path: withoutDots(path), parents: true, exclusive: false });
  }

  /** Reads a directory tree. Resolves when the output has taken everything. */
  async readTree(
    location: FileLocation & Pick<ReadTreeParts, "crossMounts" | "hardLinks">,
    output: TreeOutput,
    caller: Caller,
  ): Promise<TreeRead> {
    checkFilePath(location);
    const { clock, fileSystem } = this.#parts;
    const { signal } = caller;
    return this.#places.run(caller, (onProgress) =>
      inTree(fileSystem, "read", location, async (tree) => {
        const listed = await openTree(tree, location);
        const active: TreeOutput = {
          items: (items) => {
            onProgress();
            return output.items(items);
          },
          data: (bytes, release) => {
            onProgress();
            return output.data(bytes, release);
          },
          failures: output.failures?.bind(output),
          hole: output.hole?.bind(output),
        };
        // The files are read through a second descriptor, because the listing closes its own before the last files are
        // read.
        await using root = await openAgain(listed);
        const top = new ListedDirectory(listed);
        const { crossMounts, hardLinks } = location;
        const walk = { top, root, crossMounts, hardLinks, output: active };
        return await readTree({ ...walk, buffers: this.#buffers, clock, signal });
      }),
    );
  }

  async makeLink(request: MakeLinkRequest): Promise<void> {
    checkFilePath(request);
    checkAttributes(request);
    const { target } = request;
    if (target.length === 0) throw invalidField("target", "is empty");
    if (target.includes(0)) throw invalidField("target", "contains a NUL byte");
    const { directory, name } = namedEntry(request.path, "path");
    await this.#change("make", request, async (tree) => {
      const owner = await ownerOf(request, this.#parts.newFileOwner);
      await using above = await tree.openTree(directory, "reach");
      await makeLink(above, name, target, { uid: request.uid, gid: request.gid, owner });
    });
  }

  /** Removes an entry; with `recursive` also a directory and everything in it. */
  async remove(request: RemoveRequest, caller: Caller): Promise<Removal> {
    checkFilePath(request);
    const { directory, name } = namedEntry(request.path, "path");
    const { signal } = caller;
    return this.#places.run(caller, (onProgress) =>
      inTree(this.#parts.fileSystem, "remove", request, async (tree) => {
        await using above = new ListedDirectory(await tree.openTree(directory, "reach"));
        await above.checkMount(name);
        const removeAs = async (type: "unknown" | "directory"): Promise<string | undefined> =>
          (await above.removeEach([{ name, type }]))[0];
        let errno = await removeAs("unknown");
        if (errno === "EISDIR") {
          errno = await removeAs("directory");
          if (request.recursive && (errno === "ENOTEMPTY" || errno === "EEXIST"))
            return await removeTree({ above, name, onProgress, signal });
        }
        if (errno !== undefined) throw new FileSystemError("remove", errno);
        return { removed: 1n, left: 0n, leftEntries: [] };
      }),
    );
  }

  async rename(request: RenameRequest): Promise<void> {
    const { newPath, exclusive } = request;
    checkFilePath(request);
    checkFilePath({ ...request, path: newPath }, "new_path");
    const [from, to] = [namedEntry(request.path, "path"), namedEntry(newPath, "new_path")];
    await this.#change("rename", request, async (tree) => {
      await using source = await tree.openTree(from.directory, "reach");
      await using target = await tree.openTree(to.directory, "reach");
      const into = target.descriptor;
      const move = (addon: Addon, fd: number): Promise<number> =>
        addon.moveIn(fd, from.name, into.fd, to.name, exclusive);
      try {
        await source.descriptor.native("rename", move, [into]);
      } catch (error) {
        if (isErrno(error, "EXDEV") && isSameMount(source, target)) throw new LowerLayerDirectory();
        throw error;
      }
    });
  }

  /** Sets attributes of an entry and returns all its attributes. */
  async setAttributes(request: SetAttributesRequest): Promise<PathReport> {
    const { path, follow, mode, uid, gid, modifiedNs } = request;
    checkFilePath(request);
    checkAttributes(request);
    if ([mode, uid, gid, modifiedNs].every((value) => value === undefined))
      throw invalidField("mode", "is missing: set at least one of mode, uid, gid and mtime");
    return this.#change("change", request, async (tree) => {
      await using entry = await tree.openEntry(path, !follow);
      await setAttributes(entry, { mode, uid, gid, modifiedNs });
      const attributes = await entry.attributes("stat");
      return { attributes, linkTarget: attributes.type === "symlink" ? await tree.readLink(path) : undefined };
    });
  }

  /** Runs an operation that changes the tree. Its beginning and its end count as user activity. */
  async #change<Value>(
    action: "make" | "rename" | "change",
    location: FileLocation,
    run: (tree: FileTree) => Promise<Value>,
  ): Promise<Value> {
    const { activity, fileSystem } = this.#parts;
    activity.touch();
    const value = await inTree(fileSystem, action, location, run);
    activity.touch();
    return value;
  }
}

function isErrno(error: unknown, errno: string): boolean {
  return error instanceof FileSystemError && error.errno === errno;
}

/** Whether two directories are on the same mount. Without /proc this is unknown and the result is false. */
function isSameMount(one: OpenDirectory, other: OpenDirectory): boolean {
  const [mount, to] = [one, other].map(({ descriptor }) => mountOf(descriptor.fd));
  return mount?.path !== undefined && mount.path === to?.path && mount.fileSystem === to.fileSystem;
}

/** Opens the same directory a second time. If this fails, closes the first descriptor. */
async function openAgain(directory: OpenDirectory): Promise<OpenDirectory> {
  try {
    return await directory.enter(Buffer.from("."), false);
  } catch (error) {
    await directory[Symbol.asyncDispose]();
    throw error;
  }
}
