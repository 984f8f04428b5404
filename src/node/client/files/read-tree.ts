import { FileTree, type ReadTreeResponse, type TreeItem } from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { checkOptions } from "../arguments.ts";
import { cancelCall, type Channel } from "../channel.ts";
import type { Names } from "../options.ts";
import { type GuestPath, pathBytes, PLACE, type PlaceOptions } from "./path.ts";
import { bufferOf, isServiceError, resultOf, type TreeEntry, type TreeResult } from "./tree-entry.ts";

const NS_PER_SECOND = 1_000_000_000;

/** Options of `readTree`. */
export interface ReadTreeOptions extends PlaceOptions {
  /** Read what is mounted below it, too. Default: false. */
  readonly crossMounts?: boolean | undefined;
}

const READ: Names<ReadTreeOptions> = { ...PLACE, crossMounts: true };

/** The entries of a guest's folder in one stream, with their content. Leaving the loop ends the call. Iterate it once. */
export class TreeReading implements AsyncIterable<TreeEntry> {
  readonly #channel: Channel;
  readonly #path: GuestPath;
  readonly #options: ReadTreeOptions;
  #result: TreeResult | undefined;

  constructor(channel: Channel, path: GuestPath, options: ReadTreeOptions = {}) {
    checkOptions("the options of readTree", options, READ);
    this.#channel = channel;
    this.#path = path;
    this.#options = options;
  }

  /** What was read, and what could not be. Undefined before the end. */
  get result(): TreeResult | undefined {
    return this.#result;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TreeEntry, void, undefined> {
    const options = this.#options;
    const { beneath = "", noSymlinks = false, crossMounts = false } = options;
    const request = { path: pathBytes(this.#path), beneath: pathBytes(beneath), noSymlinks, crossMounts };
    const method = FileTree.method.readTree;
    const call = this.#channel.serverStream(method, request, options);
    const messages = (call as AsyncIterable<ReadTreeResponse>)[Symbol.asyncIterator]();
    const pull = async (): Promise<ReadTreeResponse["part"] | undefined> => {
      try {
        const next = await messages.next();
        return next.done === true ? undefined : next.value.part;
      } catch (cause) {
        throw isServiceError(cause) ? await this.#channel.failure(cause, method, options.signal) : cause;
      }
    };
    try {
      let held: ReadTreeResponse["part"] | undefined;
      for (let part = await pull(); part !== undefined; part = held ?? (await pull())) {
        held = undefined;
        if (part.case === "result") {
          this.#result = resultOf(part.value.items, part.value.failed, part.value.failures);
          return;
        }
        if (part.case !== "items") continue;
        for (const item of part.value.items) {
          let leftBytes = Number(item.size) - item.data.length;
          const content = async function* (): AsyncGenerator<Buffer> {
            if (item.data.length > 0) yield bufferOf(item.data);
            while (leftBytes > 0 && held === undefined) {
              const more = await pull();
              if (more?.case !== "data") held = more;
              else {
                leftBytes -= more.value.length;
                yield bufferOf(more.value);
              }
              if (more === undefined) return;
            }
          };
          const bytes = content();
          yield entryOf(item, bytes);
          // What was not read of it is in the way of the next.
          while ((await bytes.next()).done !== true);
        }
      }
    } finally {
      cancelCall(call);
    }
  }
}

function entryOf(
  { path, type, linkTarget, mode, uid, gid, mtime, size }: TreeItem,
  content: AsyncIterable<Buffer>,
): TreeEntry {
  const ofFile = linkTarget.length > 0 ? "hard-link" : "file";
  const ofOther = type === FileType.SYMLINK ? "symlink" : "directory";
  return {
    type: type === FileType.REGULAR ? ofFile : ofOther,
    name: bufferOf(path),
    linkName: bufferOf(linkTarget),
    mode: mode ?? 0,
    uid,
    gid,
    modifiedSeconds: Number(mtime?.seconds ?? 0n) + (mtime?.nanos ?? 0) / NS_PER_SECOND,
    sizeBytes: Number(size),
    content,
  };
}
