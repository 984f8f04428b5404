import { FileTree, type ReadTreeResponse, type TreeItem } from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { checkOptions } from "../arguments.ts";
import { type Piece, withZeros } from "../../tar/index.ts";
import { cancelCall, type Channel } from "../channel.ts";
import { failure, type GuestError } from "../errors.ts";
import type { Names } from "../options.ts";
import { type GuestPath, pathBytes, PLACE, type PlaceOptions } from "./path.ts";
import { bufferOf, isServiceError, resultOf, type TreeEntry, type TreeResult } from "./tree-entry.ts";

const NS_PER_SECOND = 1_000_000_000;
const MAX_SIZE_BYTES = BigInt(Number.MAX_SAFE_INTEGER);

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
    const request = { path: pathBytes(this.#path), beneath: pathBytes(beneath), noSymlinks, crossMounts, holes: true };
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
        if (part.case === "data" || part.case === "hole") throw untrue("bytes that no file lacks");
        if (part.case !== "items") continue;
        for (const item of part.value.items) {
          if (item.size > MAX_SIZE_BYTES) throw untrue(`a file of ${item.size} bytes`, item);
          let leftBytes = restOf(item, Number(item.size), item.data.length);
          const content = async function* (): AsyncGenerator<Piece> {
            if (item.data.length > 0) yield bufferOf(item.data);
            while (leftBytes > 0 && held === undefined) {
              const more = await pull();
              if (more?.case === "data") {
                leftBytes = restOf(item, leftBytes, more.value.length);
                yield bufferOf(more.value);
              } else if (more?.case === "hole") {
                const holeBytes = Number(more.value);
                leftBytes = restOf(item, leftBytes, holeBytes);
                yield { holeBytes };
              } else held = more;
              if (more === undefined) return;
            }
          };
          const isWhole = leftBytes === 0;
          const pieces = content();
          yield entryOf(item, pieces, isWhole);
          // What was not read of it is in the way of the next.
          if (!isWhole) while ((await pieces.next()).done !== true);
        }
      }
    } finally {
      cancelCall(call);
    }
  }
}

function entryOf(
  { path, type, linkTarget, mode, uid, gid, mtime, size, sparse, data }: TreeItem,
  pieces: AsyncIterable<Piece>,
  isWhole: boolean,
): TreeEntry {
  const ofFile = linkTarget.length > 0 ? "hard-link" : "file";
  const ofOther = type === FileType.SYMLINK ? "symlink" : "directory";
  return {
    type: type === FileType.REGULAR ? ofFile : ofOther,
    name: bufferOf(path),
    linkTarget: bufferOf(linkTarget),
    mode: mode ?? 0,
    uid,
    gid,
    mtimeSeconds: Number(mtime?.seconds ?? 0n) + (mtime?.nanos ?? 0) / NS_PER_SECOND,
    size: Number(size),
    sparse,
    get content() {
      return withZeros(pieces);
    },
    pieces,
    readAll: isWhole ? () => bufferOf(data) : undefined,
  };
}

function restOf(item: TreeItem, leftBytes: number, bytes: number): number {
  if (bytes > leftBytes) throw untrue(`more bytes than ${item.size}`, item);
  return leftBytes - bytes;
}

/** The error for what no agent says; whatever runs in the sandbox may have taken its place. */
function untrue(what: string, item?: TreeItem): GuestError {
  const of = item === undefined ? "" : ` of ${JSON.stringify(bufferOf(item.path).toString())}`;
  const message = `the sandbox's answer is not to be trusted: it has ${what}${of}`;
  return failure("DATA_LOSS", "ANSWER_UNREADABLE", message);
}
