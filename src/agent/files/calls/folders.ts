import {
  type ActivityClock,
  BufferPool,
  type Caller,
  type Clock,
  CONNECTION_FOLDER_CALL_LIMIT,
  FileSystemError,
  FOLDER_CALL_LIMIT,
  invalidField,
} from "../../domain/index.ts";
import { CallPlaces } from "./call-places.ts";
import { checkAttributes, checkFilePath, type FileLocation, inTree, wholePath } from "./location.ts";
import type { FileAttributes, FileOwner } from "../attributes.ts";
import type { PathReport } from "./files.ts";
import type { Addon } from "../../native/index.ts";
import type { FileSystem, FileTree } from "../open/file-system.ts";
import type { OpenFolder } from "../open/folder.ts";
import { withoutDots } from "../open/names.ts";
import { mountOf } from "../threads/mounts.ts";
import { attributesOf, CreatedDirectories, ownerOf } from "../entries/created-directories.ts";
import { ListedFolder } from "../entries/listed-folder.ts";
import { makeDirectory, makeLink, setAttributes } from "../entries/make.ts";
import { LowerLayer, wrongType } from "./failure.ts";
import { type ListOutput, listTree } from "./list.ts";
import { FILE_BUFFERS } from "./read.ts";
import { temporaryName } from "../entries/leftovers.ts";
import { readTree, type TreeOutput, type TreeRead } from "./read-tree.ts";
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

/** What the folders capability needs. */
export interface FoldersParts {
  readonly fileSystem: FileSystem;
  readonly activity: Pick<ActivityClock, "touch">;
  readonly clock: Pick<Clock, "monotonicMs">;
  /** Owner of new folders and links. */
  readonly newFileOwner: () => Promise<FileOwner>;
}

/** Where a written tree comes from. */
export interface TreeInput {
  /** Hands all items over. */
  fill(writer: TreeWriter, onProgress: () => void): Promise<void>;
  /** Called while the rest is done, when there may be failures to report. */
  progressed(writer: TreeWriter): Promise<void>;
}

/** Lists and changes folders of the guest, with the agent's own rights. Everything throws AgentError. */
export class Folders {
  readonly #parts: FoldersParts;
  readonly #places: CallPlaces;
  readonly #buffers = new BufferPool(FILE_BUFFERS);

  constructor(parts: FoldersParts) {
    this.#parts = parts;
    this.#places = new CallPlaces({
      calls: "calls of List and Remove",
      limit: FOLDER_CALL_LIMIT,
      connectionLimit: CONNECTION_FOLDER_CALL_LIMIT,
      ...parts,
    });
  }

  /** Lists a folder. Resolves when the output has taken everything. */
  async list(request: ListRequest, output: ListOutput, caller: Caller): Promise<void> {
    checkFilePath(request);
    const { clock, fileSystem } = this.#parts;
    const { signal } = caller;
    await this.#places.run(caller, (onProgress) =>
      inTree(fileSystem, "list", request, async (tree) => {
        const top = new ListedFolder(await openTree(tree, request));
        const taken: ListOutput = async (entries, truncated) => {
          onProgress();
          await output(entries, truncated);
          onProgress();
        };
        await listTree({ top, request, output: taken, clock, signal });
      }),
    );
  }

  /** Makes a folder. Resolves with false where there is one already. */
  async makeFolder(request: MakeFolderRequest): Promise<boolean> {
    checkFilePath(request);
    checkAttributes(request);
    return this.#change("make", request, async (tree) => {
      const created = new CreatedDirectories(tree);
      try {
        const owner = await ownerOf(request, this.#parts.newFileOwner);
        const { folder, name } = namedEntry(request.path, "path");
        const { mode, uid, gid } = request;
        if (request.parents) await created.make(folder, { uid, gid, owner });
        const path = Buffer.concat([folder, Buffer.from("/"), name]);
        await makeDirectory(tree, path, { mode, uid, gid, owner });
        return true;
      } catch (error) {
        if (isErrno(error, "EEXIST") && !request.exclusive) {
          const there = await tree.stat(request.path, false);
          if (there.type === "directory") return false;
          throw wrongType("make", wholePath(request), there.type, "folder");
        }
        await created.rollback();
        throw error;
      }
    });
  }

  /** Writes a tree below a folder. Throws AgentError; what could not be written is in the result. */
  async writeTree(request: WriteTreeRequest, input: TreeInput, caller: Caller): Promise<TreeProgress> {
    checkFilePath(request);
    const { fileSystem, newFileOwner } = this.#parts;
    const { parents, ...location } = request;
    if (parents) await this.#makeRoot(location);
    return this.#places.run(caller, (onProgress) =>
      inTree(fileSystem, "write", request, async (tree) => {
        await using folder = await openTree(tree, request);
        await using writer = new TreeWriter(folder, request, await newFileOwner(), temporaryName(), caller.signal);
        await input.fill(writer, onProgress);
        return await writer.finish(() => input.progressed(writer));
      }),
    );
  }

  /** Makes a tree's directory, unless it is there: a path such as "/" or "x/." names none that could be made. */
  async #makeRoot(location: FileLocation): Promise<void> {
    const { path } = location;
    const stat = (tree: FileTree): Promise<FileAttributes | undefined> => attributesOf(tree, path, false);
    if ((await inTree(this.#parts.fileSystem, "write", location, stat)) !== undefined) return;
    await this.makeFolder({ ...location, path: withoutDots(path), parents: true, exclusive: false });
  }

  /** Reads a folder with all below it. Resolves when the output has taken everything. */
  async readTree(
    location: FileLocation & Pick<ListRequest, "crossMounts">,
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
        // The list closes its own before its last entries are out.
        await using root = await openAgain(listed);
        const top = new ListedFolder(listed);
        const { crossMounts } = location;
        return await readTree({ top, root, crossMounts, output: active, buffers: this.#buffers, clock, signal });
      }),
    );
  }

  async makeLink(request: MakeLinkRequest): Promise<void> {
    checkFilePath(request);
    checkAttributes(request);
    const { target } = request;
    if (target.length === 0) throw invalidField("target", "is empty");
    if (target.includes(0)) throw invalidField("target", "holds a NUL");
    const { folder, name } = namedEntry(request.path, "path");
    await this.#change("make", request, async (tree) => {
      const owner = await ownerOf(request, this.#parts.newFileOwner);
      await using above = await tree.openTree(folder, "reach");
      await makeLink(above, name, target, { uid: request.uid, gid: request.gid, owner });
    });
  }

  /** Removes an entry; a folder with all in it where the request says so. */
  async remove(request: RemoveRequest, caller: Caller): Promise<Removal> {
    checkFilePath(request);
    const { folder, name } = namedEntry(request.path, "path");
    const { signal } = caller;
    return this.#places.run(caller, (onProgress) =>
      inTree(this.#parts.fileSystem, "remove", request, async (tree) => {
        await using above = new ListedFolder(await tree.openTree(folder, "reach"));
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
      await using source = await tree.openTree(from.folder, "reach");
      await using target = await tree.openTree(to.folder, "reach");
      const into = target.descriptor;
      const move = (addon: Addon, fd: number): Promise<number> =>
        addon.moveIn(fd, from.name, into.fd, to.name, exclusive);
      try {
        await source.descriptor.native("rename", move, [into]);
      } catch (error) {
        if (isErrno(error, "EXDEV") && isSameMount(source, target)) throw new LowerLayer();
        throw error;
      }
    });
  }

  /** Sets attributes of an entry, and returns all of its attributes. */
  async setAttributes(request: SetAttributesRequest): Promise<PathReport> {
    const { path, follow, mode, uid, gid, modifiedNs } = request;
    checkFilePath(request);
    checkAttributes(request);
    if ([mode, uid, gid, modifiedNs].every((value) => value === undefined))
      throw invalidField("mode", "is missing, and uid, gid and mtime too: there is nothing to set");
    return this.#change("change", request, async (tree) => {
      await using entry = await tree.openEntry(path, !follow);
      await setAttributes(entry, { mode, uid, gid, modifiedNs });
      const attributes = await entry.attributes("stat");
      return { attributes, linkTarget: attributes.type === "symlink" ? await tree.readLink(path) : undefined };
    });
  }

  /** Runs a change, which is activity when it begins and when it is done. */
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

/** Opens a directory to read it. Names the type of what is there instead, unless it is a part of the path above. */
async function openTree(tree: FileTree, location: FileLocation): Promise<OpenFolder> {
  try {
    return await tree.openTree(location.path, "read");
  } catch (error) {
    if (!isErrno(error, "ENOTDIR")) throw error;
    const { type } = await tree.stat(location.path, false);
    throw wrongType("list", wholePath(location), type, "folder");
  }
}

/** Whether two directories are in one mount; false without /proc. */
function isSameMount(one: OpenFolder, other: OpenFolder): boolean {
  const [mount, to] = [one, other].map(({ descriptor }) => mountOf(descriptor.fd));
  return mount?.path !== undefined && mount.path === to?.path && mount.fileSystem === to.fileSystem;
}

/** The same directory once more. Closes the first where that fails. */
async function openAgain(folder: OpenFolder): Promise<OpenFolder> {
  try {
    return await folder.enter(Buffer.from("."), false);
  } catch (error) {
    await folder[Symbol.asyncDispose]();
    throw error;
  }
}
