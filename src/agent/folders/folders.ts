import {
  type ActivityClock,
  AgentError,
  Allowance,
  type Caller,
  checkAttributes,
  checkFilePath,
  type Clock,
  CONNECTION_FOLDER_CALL_LIMIT,
  type FileAttributes,
  type FileLocation,
  type FileOwner,
  type FileSystem,
  FileSystemError,
  type FileTree,
  FOLDER_CALL_LIMIT,
  groupOfEntries,
  inTree,
  invalidField,
  notAFolder,
  Parents,
  type Share,
  wholePath,
} from "../domain/index.ts";
import { type ListOutput, listTree } from "./list.ts";
import { type Removal, removeTree } from "./remove.ts";
import {
  type ListRequest,
  type MakeFolderRequest,
  type MakeLinkRequest,
  namedEntry,
  type RemoveRequest,
  type RenameRequest,
  type SetAttributesRequest,
} from "./requests.ts";

const FOLDER_MODE = 0o755;
/** Mode of a folder whose new entries get its group (inode(7)). */
const SETGID = 0o2000;

/** What the folders capability needs. */
export interface FoldersParts {
  readonly fileSystem: FileSystem;
  readonly activity: Pick<ActivityClock, "touch">;
  readonly clock: Pick<Clock, "monotonicMs">;
  /** Owner of new folders and links. */
  readonly newFileOwner: () => Promise<FileOwner>;
}

/** Lists and changes folders of the guest, with the agent's own rights. Everything throws AgentError. */
export class Folders {
  readonly #parts: FoldersParts;
  readonly #places: Allowance;

  constructor(parts: FoldersParts) {
    this.#parts = parts;
    this.#places = new Allowance({
      limit: FOLDER_CALL_LIMIT,
      ownerLimit: CONNECTION_FOLDER_CALL_LIMIT,
      clock: parts.clock,
      refusal: tooManyCalls,
    });
  }

  /** Lists a folder. Resolves when the output has taken everything. */
  async list(request: ListRequest, output: ListOutput, caller: Caller): Promise<void> {
    checkFilePath(request);
    const { clock, fileSystem } = this.#parts;
    const { signal } = caller;
    await this.#walk(caller, (onProgress) =>
      inTree(fileSystem, "list", request, async (tree) => {
        const top = await tree.openFolder(request.path, true).catch(asNoFolder(tree, "list", request));
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
      const parents = new Parents(tree);
      try {
        const owner = await this.#ownerOf(request);
        const { folder, name } = namedEntry(request.path, "path");
        const inherits = request.gid === undefined;
        if (request.parents) await parents.make(folder, owner, inherits);
        const gid = inherits ? await groupOfEntries(tree, folder) : undefined;
        const mode = request.mode ?? (gid === undefined ? FOLDER_MODE : FOLDER_MODE | SETGID);
        const path = Buffer.concat([folder, Buffer.from("/"), name]);
        await tree.makeDirectory(path, gid === undefined ? owner : { ...owner, gid }, mode);
        return true;
      } catch (error) {
        if (isErrno(error, "EEXIST") && !request.exclusive) {
          const there = await tree.stat(request.path, false);
          if (there.type === "directory") return false;
          throw notAFolder("make", wholePath(request), there.type);
        }
        await parents.takeBack();
        throw error;
      }
    });
  }

  /** Makes a symbolic link. */
  async makeLink(request: MakeLinkRequest): Promise<void> {
    checkFilePath(request);
    checkAttributes(request);
    const { target } = request;
    if (target.length === 0) throw invalidField("target", "is empty");
    if (target.includes(0)) throw invalidField("target", "holds a NUL");
    const { folder, name } = namedEntry(request.path, "path");
    await this.#change("make", request, async (tree) => {
      const { uid, gid } = await this.#ownerOf(request);
      await using above = await tree.openFolder(folder, false);
      await above.makeLink(name, target, uid, gid);
    });
  }

  /** Removes an entry; a folder with all in it where the request says so. */
  async remove(request: RemoveRequest, caller: Caller): Promise<Removal> {
    checkFilePath(request);
    const { folder, name } = namedEntry(request.path, "path");
    const { signal } = caller;
    return this.#walk(caller, (onProgress) =>
      inTree(this.#parts.fileSystem, "remove", request, async (tree) => {
        await using above = await tree.openFolder(folder, false);
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

  /** Gives an entry another name or folder. */
  async rename(request: RenameRequest): Promise<void> {
    const { newPath, exclusive } = request;
    checkFilePath(request);
    checkFilePath({ ...request, path: newPath }, "new_path");
    const [from, to] = [namedEntry(request.path, "path"), namedEntry(newPath, "new_path")];
    await this.#change("rename", request, async (tree) => {
      await using source = await tree.openFolder(from.folder, false);
      await using target = await tree.openFolder(to.folder, false);
      await source.move(from.name, target, to.name, exclusive);
    });
  }

  /** Sets attributes of an entry, and returns all of its attributes. */
  async setAttributes(request: SetAttributesRequest): Promise<FileAttributes> {
    const { path, follow, mode, uid, gid, modifiedNs } = request;
    checkFilePath(request);
    checkAttributes(request);
    if ([mode, uid, gid, modifiedNs].every((value) => value === undefined))
      throw invalidField("mode", "is missing, and uid, gid and mtime too: there is nothing to set");
    return this.#change("change", request, async (tree) => {
      await using entry = await tree.openEntry(path, !follow);
      if (uid !== undefined || gid !== undefined) await entry.setOwner(uid, gid);
      if (mode !== undefined) await entry.setMode(mode);
      if (modifiedNs !== undefined) await entry.setModified(modifiedNs);
      return await entry.attributes();
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

  /** Runs a long operation in a place of its own. */
  async #walk<Value>(caller: Caller, run: (onProgress: () => void) => Promise<Value>): Promise<Value> {
    const { activity } = this.#parts;
    const place: Share = this.#places.share(caller.connection, (reason) => caller.giveUp(reason));
    place.set(1);
    const onProgress = (): void => {
      activity.touch();
      place.progress();
    };
    onProgress();
    try {
      return await run(onProgress);
    } finally {
      if (!caller.signal.aborted) activity.touch();
      place.set(0);
    }
  }

  async #ownerOf({ uid, gid }: Pick<MakeFolderRequest, "uid" | "gid">): Promise<FileOwner> {
    if (uid !== undefined && gid !== undefined) return { uid, gid };
    const fallback = await this.#parts.newFileOwner();
    return { uid: uid ?? fallback.uid, gid: gid ?? fallback.gid };
  }
}

function isErrno(error: unknown, errno: string): boolean {
  return error instanceof FileSystemError && error.errno === errno;
}

/** For ENOTDIR, says what the path is instead, unless a parent is the one that is not a folder. */
function asNoFolder(tree: FileTree, action: "list", location: FileLocation): (error: unknown) => Promise<never> {
  return async (error) => {
    if (!isErrno(error, "ENOTDIR")) throw error;
    const { type } = await tree.stat(location.path, false);
    throw notAFolder(action, wholePath(location), type);
  };
}

function tooManyCalls(because: string): AgentError {
  const limits = `${FOLDER_CALL_LIMIT} calls of List and Remove are open, or ${CONNECTION_FOLDER_CALL_LIMIT} of this connection`;
  const metadata = { limit: String(FOLDER_CALL_LIMIT), connectionLimit: String(CONNECTION_FOLDER_CALL_LIMIT) };
  return new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_FILE_CALLS", `${limits}; refused because ${because}`, metadata);
}
