import { GuestError, type GuestClient, type NewAttributes } from "../../client/index.ts";
import { isReason } from "./guest-paths.ts";
import { type CopyContext, NOT_COPIED } from "./report.ts";
import { sourceFailure } from "./source-failure.ts";
import { timeOf, type UploadEntry, writeFile } from "./write-file.ts";

/* Agents before 0.3.0 cannot copy a whole tree in one call, so each entry is a call of its own. */

const SLASH = Buffer.from("/");
const CURRENT_DIRECTORY = Buffer.from(".");

/**
 * Returns an error handler that copies with another method if the agent is too old for the first method. It rethrows
 * other errors.
 */
export function ifTooOld<Value>(copy: () => Promise<Value>): (error: unknown) => Promise<Value> {
  return (error) => {
    if (error instanceof GuestError && error.status === "UNIMPLEMENTED") return copy();
    throw error;
  };
}

/** Called for an entry that cannot be copied although the copy continues. `why` is the reason as shown to the user. */
type OnFailure = (name: Buffer, error: unknown, why: string) => void;

/**
 * Fills a directory in the sandbox. The agent resolves all paths beneath the parent of that directory, and follows no
 * symlink that leads out of the parent.
 */
export class GuestTarget {
  readonly #context: CopyContext;
  readonly #client: GuestClient;
  readonly #beneath: string;
  readonly #top: Buffer;
  /**
   * Modes and times of directories. They are set at the end, because writing into a directory changes its time, and
   * because the mode may forbid writing into it.
   */
  readonly #directories: ({ readonly path: Buffer; readonly name: Buffer } & NewAttributes)[] = [];
  readonly #onFailure: OnFailure;

  constructor(context: CopyContext, beneath: string, top: Buffer, onFailure: OnFailure) {
    this.#context = context;
    this.#client = context.client;
    this.#beneath = beneath;
    this.#top = top;
    this.#onFailure = onFailure;
  }

  /** Creates all entries, up to `atOnce` files concurrently. An entry that fails ends the copy only with --fail-fast. */
  async fill(entries: Iterable<UploadEntry> | AsyncIterable<UploadEntry>, atOnce: number): Promise<void> {
    const writing = new Set<Promise<void>>();
    let failure: { readonly error: unknown } | undefined;
    for await (const entry of entries) {
      // Only files whose content is in memory are written concurrently. Finish every other entry before the next one:
      // the next entry may be inside a new directory or replace a new symlink, and streamed content must be read first.
      const isConcurrent = entry.type === "file" && entry.readAll !== undefined && atOnce > 1;
      const made = this.#orFailed(entry.name, this.#add(entry)).catch((error: unknown) => {
        failure ??= { error };
      });
      writing.add(made);
      void made.then(() => writing.delete(made));
      if (!isConcurrent) await made;
      else if (writing.size >= atOnce) await Promise.race(writing);
      if (failure !== undefined) break;
    }
    await Promise.all(writing);
    if (failure !== undefined) throw failure.error;
    for (const { path, name, ...attributes } of this.#directories.toReversed())
      await this.#orFailed(name, this.#client.files.setAttributes(path, attributes, { beneath: this.#beneath }));
  }

  /**
   * Awaits the creation of an entry. Reports a failure that concerns this entry alone. Rejects with any other error,
   * because it ends the whole copy.
   */
  async #orFailed(name: Buffer, made: Promise<unknown>): Promise<void> {
    try {
      await made;
    } catch (error) {
      const why = this.#context.options.failFast ? undefined : sourceFailure(error);
      if (why === undefined) throw error;
      this.#onFailure(name, error, why);
    }
  }

  async #add(entry: UploadEntry): Promise<void> {
    const { type, name, linkTarget, mode, uid, gid, mtimeSeconds } = entry;
    const path = this.#pathOf(name);
    const beneath = this.#beneath;
    if (type === "directory") {
      if (!path.equals(CURRENT_DIRECTORY))
        await this.#client.files.mkdir(path, { beneath, recursive: true, mode: (mode & 0o7777) | 0o700 });
      this.#directories.push({ path, name, mode: mode & 0o7777, uid, gid, mtime: new Date(mtimeSeconds * 1_000) });
    } else if (type === "file") await writeFile(this.#context, path, entry, true, beneath);
    else if (type === "symlink") await this.#link(path, linkTarget, { uid, gid });
    else if (type === "hard-link") {
      const source = this.#client.files.createReadStream(this.#pathOf(linkTarget), { beneath });
      await this.#client.files.writeFile(path, source, {
        beneath,
        mode: mode & 0o7777,
        uid,
        gid,
        ...timeOf(mtimeSeconds),
      });
      this.#context.report.files += 1;
    } else this.#context.report.skip(name.toString(), NOT_COPIED);
  }

  /** Replaces an existing entry, as tar(1) does. */
  async #link(path: Buffer, target: Buffer, owner: Pick<NewAttributes, "uid" | "gid">): Promise<void> {
    const beneath = this.#beneath;
    const make = (): Promise<void> => this.#client.files.symlink(target, path, { beneath, ...owner });
    await make().catch(async (error: unknown) => {
      if (isReason(error, "PATH_NOT_FOUND")) {
        await this.#client.files.mkdir(path.subarray(0, path.lastIndexOf(SLASH)), { beneath, recursive: true });
      } else if (isReason(error, "ALREADY_EXISTS")) await this.#client.files.rm(path, { beneath });
      else throw error;
      await make();
    });
  }

  /** Path of an entry, relative to the directory `beneath`. */
  #pathOf(name: Buffer): Buffer {
    const [first = CURRENT_DIRECTORY, second] = [this.#top, name].filter((part) => part.length > 0);
    return second === undefined ? first : Buffer.concat([first, SLASH, second]);
  }
}
