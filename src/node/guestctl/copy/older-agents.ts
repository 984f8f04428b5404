import { GuestError, type GuestClient, type NewAttributes } from "../../client/index.ts";
import { isReason } from "./guest-paths.ts";
import { type CopyContext, NOT_COPIED } from "./report.ts";
import { sourceFailure } from "./source-failure.ts";
import { timeOf, type UploadEntry, writeFile } from "./write-file.ts";

/* Agents before 0.3.0 have no call for whole trees: each entry is a call of its own. */

const SLASH = Buffer.from("/");
const HERE = Buffer.from(".");

/** Copies in another way if an agent is too old for the first; any other error stays what it is. */
export function ifTooOld<Value>(copy: () => Promise<Value>): (error: unknown) => Promise<Value> {
  return (error) => {
    if (error instanceof GuestError && error.status === "UNIMPLEMENTED") return copy();
    throw error;
  };
}

/** Hears of an entry that cannot be copied, and why in words, while the others can. */
type OnFailure = (name: Buffer, error: unknown, why: string) => void;

/** A directory of the sandbox that is being filled. Nothing leaves the directory above it, not even over a link. */
export class GuestTarget {
  readonly #context: CopyContext;
  readonly #client: GuestClient;
  readonly #beneath: string;
  readonly #top: Buffer;
  /** Modes and times for the end: writing into a folder changes its time, and its mode may forbid it. */
  readonly #folders: ({ readonly path: Buffer; readonly name: Buffer } & NewAttributes)[] = [];
  readonly #onFailure: OnFailure;

  constructor(context: CopyContext, beneath: string, top: Buffer, onFailure: OnFailure) {
    this.#context = context;
    this.#client = context.client;
    this.#beneath = beneath;
    this.#top = top;
    this.#onFailure = onFailure;
  }

  /** Creates all entries, several files at once. Goes on after one that cannot be copied, except with --fail-fast. */
  async fill(entries: Iterable<UploadEntry> | AsyncIterable<UploadEntry>, atOnce: number): Promise<void> {
    const writing = new Set<Promise<void>>();
    let failure: { readonly error: unknown } | undefined;
    for await (const entry of entries) {
      // Folders and links are complete before the next entry, which may lie in the one or have the name of the other.
      const made = this.#orFailed(entry.name, this.#add(entry)).catch((error: unknown) => {
        failure ??= { error };
      });
      writing.add(made);
      void made.then(() => writing.delete(made));
      if (entry.type !== "file" || writing.size >= atOnce) await (entry.type === "file" ? Promise.race(writing) : made);
      if (failure !== undefined) break;
    }
    await Promise.all(writing);
    if (failure !== undefined) throw failure.error;
    for (const { path, name, ...attributes } of this.#folders.toReversed())
      await this.#orFailed(name, this.#client.setAttributes(path, attributes, { beneath: this.#beneath }));
  }

  /** Rejects with an error that ends the whole copy. */
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
      if (!path.equals(HERE)) await this.#client.mkdir(path, { beneath, parents: true, mode: (mode & 0o7777) | 0o700 });
      this.#folders.push({ path, name, mode: mode & 0o7777, uid, gid, mtime: new Date(mtimeSeconds * 1_000) });
    } else if (type === "file") await writeFile(this.#context, path, entry, true, beneath);
    else if (type === "symlink") await this.#link(path, linkTarget, { uid, gid });
    else if (type === "hard-link") {
      const source = this.#client.readFile(this.#pathOf(linkTarget), { beneath });
      await this.#client.writeFile(path, source, { beneath, mode: mode & 0o7777, uid, gid, ...timeOf(mtimeSeconds) });
      this.#context.report.files += 1;
    } else this.#context.report.skip(name.toString(), NOT_COPIED);
  }

  /** Replaces whatever is there, as tar(1) does. */
  async #link(path: Buffer, target: Buffer, owner: Pick<NewAttributes, "uid" | "gid">): Promise<void> {
    const beneath = this.#beneath;
    const make = (): Promise<void> => this.#client.symlink(target, path, { beneath, ...owner });
    await make().catch(async (error: unknown) => {
      if (isReason(error, "PATH_NOT_FOUND")) {
        await this.#client.mkdir(path.subarray(0, path.lastIndexOf(SLASH)), { beneath, parents: true });
      } else if (isReason(error, "ALREADY_EXISTS")) await this.#client.remove(path, { beneath });
      else throw error;
      await make();
    });
  }

  /** The path beneath the folder that nothing leaves. */
  #pathOf(name: Buffer): Buffer {
    const [first = HERE, second] = [this.#top, name].filter((part) => part.length > 0);
    return second === undefined ? first : Buffer.concat([first, SLASH, second]);
  }
}
