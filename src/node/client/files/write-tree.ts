import {
  FileTree,
  TreeSync,
  WriteTreeRequestSchema,
  type WriteTreeResponse,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import type { EntryError } from "../../tar/index.ts";
import { checkOptions } from "../arguments.ts";
import { cancelCall, type Channel, encoded } from "../channel.ts";
import { GuestError, unreadable } from "../errors.ts";
import type { Names } from "../options.ts";
import { deferred } from "../deferred.ts";
import { type GuestPath, pathBytes, PLACE, type PlaceOptions } from "./path.ts";
import { isServiceError, type LeftEntry, leftOf, resultOf, type TreeEntry, type TreeResult } from "./tree-entry.ts";
import { type TreeEntries, TreeSender, type Write } from "./tree-sender.ts";
import { sourceFailure, untilAnswered } from "./write.ts";

/** Failures that a result names. */
const NAMED_FAILURES = 100;

/** Options of `writeTree`. */
export interface WriteTreeOptions extends PlaceOptions {
  /** Make the folder, with missing ones above it. Default: false. */
  readonly parents?: boolean | undefined;
  /** Replace what is there, except for folders. Default: false, it counts as failed. */
  readonly overwrite?: boolean | undefined;
  /** Keep setuid, setgid and sticky bits. Default: false. */
  readonly specialBits?: boolean | undefined;
  /** Reject at the first entry that fails. Default: false, it is in the result. */
  readonly failFast?: boolean | undefined;
  /** "all": on the disk before the call resolves (default); "none": when the guest's kernel writes it. */
  readonly sync?: "all" | "none" | undefined;
  /**
   * Called for each entry that fails, as soon as the agent reports it or its content cannot be read; `failures` of the
   * result has the first 100. An older agent reports at most 100, at the end.
   */
  readonly onFailure?: ((failure: LeftEntry) => void) | undefined;
  /** Called with what is done so far. */
  readonly onProgress?: ((done: { readonly entries: number; readonly bytes: number }) => void) | undefined;
}

/** Their names. */
export const WRITE_TREE: Names<WriteTreeOptions> = {
  ...PLACE,
  parents: true,
  overwrite: true,
  specialBits: true,
  failFast: true,
  sync: true,
  onFailure: true,
  onProgress: true,
};

/**
 * Writes entries below a folder of the guest in one stream. Asks for the first entry once the agent has the folder
 * open, so that a refusal (UNIMPLEMENTED by an older agent) leaves them untouched. Rejects with GuestError; where the
 * entries failed, their error is the cause.
 *
 * @param onSent called with each entry whose item is sent, in the order in which the agent counts them as done
 */
export async function writeTree(
  channel: Channel,
  path: GuestPath,
  entries: TreeEntries,
  options: WriteTreeOptions = {},
  onSent?: (entry: TreeEntry) => void,
): Promise<TreeResult> {
  checkOptions("the options of writeTree", options, WRITE_TREE);
  const {
    parents = false,
    overwrite = false,
    specialBits = false,
    failFast = false,
    sync = "all",
    onFailure,
    onProgress,
  } = options;
  const call = channel.bidiStream(FileTree.method.writeTree, options);
  const answers = (call as AsyncIterable<WriteTreeResponse>)[Symbol.asyncIterator]();
  const answered = deferred<void>();
  const orAnswer = untilAnswered(answered.promise);
  // A call that has ended takes no more, and says nothing of what it did not take.
  const write: Write = (message) => orAnswer(new Promise((resolve) => call.write(message, () => resolve())));
  const place = {
    path: pathBytes(path),
    beneath: pathBytes(options.beneath ?? ""),
    noSymlinks: options.noSymlinks ?? false,
  };
  const unsent = new Unsent(options);
  let takes = { holes: false, itemFailures: false };
  let result: WriteTreeResponse | undefined;
  const take = (answer: WriteTreeResponse): void => {
    result = answer;
    for (const failed of answer.newFailures) onFailure?.(leftOf(failed));
    onProgress?.({ entries: Number(answer.items), bytes: Number(answer.bytesWritten) });
  };
  const follow = async (): Promise<void> => {
    for (let next = await answers.next(); next.done !== true; next = await answers.next()) take(next.value);
  };
  try {
    const value = {
      ...place,
      parents,
      overwrite,
      specialBits,
      failFast,
      sync: sync === "all" ? TreeSync.ALL : TreeSync.NONE,
    };
    await write(encoded(WriteTreeRequestSchema, { part: { case: "header", value } }));
    const first = await answers.next();
    if (first.done !== true) take(first.value);
    const { holes = false, itemFailures = false } = result ?? {};
    takes = { holes, itemFailures };
    const followed = follow().finally(() => answered.resolve());
    // A refusal ends the sending; it is reported below.
    followed.catch(() => undefined);
    const sender = new TreeSender({ write, orAnswer, takes, onFailure: (...failed) => unsent.add(...failed), onSent });
    await sender.send(entries).catch((error: unknown) => {
      if (error instanceof GuestError || unsent.callbackError?.error === error) throw error;
      throw sourceFailure("the entries", error);
    });
    call.end();
    await followed;
  } catch (cause) {
    cancelCall(call);
    if (cause instanceof GuestError || !isServiceError(cause)) throw cause;
    throw await channel.failure(cause, FileTree.method.writeTree, options.signal);
  }
  if (result?.done !== true) throw unreadable("has no result");
  // An agent before 0.4.0 reports them at the end alone.
  if (!takes.itemFailures) for (const failed of result.failures) onFailure?.(leftOf(failed));
  return unsent.with(resultOf(result.items, result.failed, result.failures));
}

/** Entries that this side could not send. */
class Unsent {
  /** What the caller's onFailure threw. */
  callbackError: { readonly error: unknown } | undefined;
  readonly #options: WriteTreeOptions;
  readonly #first: LeftEntry[] = [];
  #count = 0;

  constructor(options: WriteTreeOptions) {
    this.#options = options;
  }

  /** Throws the failure where the first one ends the call, and what the caller's onFailure throws. */
  add({ name }: TreeEntry, error: EntryError): void {
    if (this.#options.failFast === true) throw error;
    const failed: LeftEntry = { name: name.toString(), rawName: name, errno: error.errno, local: true };
    if (this.#count++ < NAMED_FAILURES) this.#first.push(failed);
    try {
      this.#options.onFailure?.(failed);
    } catch (thrown) {
      this.callbackError = { error: thrown };
      throw thrown;
    }
  }

  /** The agent's result with them. */
  with({ entries, failed, failures }: TreeResult): TreeResult {
    const named = [...this.#first, ...failures].slice(0, NAMED_FAILURES);
    return { entries, failed: failed + this.#count, failures: named };
  }
}
