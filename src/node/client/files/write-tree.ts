import {
  FileTree,
  TreeSync,
  WriteTreeRequestSchema,
  type WriteTreeResponse,
} from "../../../shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import type { EntryError } from "../../tar/index.ts";
import { checkOptions } from "../arguments.ts";
import { cancelCall, type Channel, encoded } from "../grpc/channel.ts";
import { GuestError, unreadable } from "../errors/errors.ts";
import type { Names } from "../options.ts";
import { deferred } from "../deferred.ts";
import { type GuestPath, pathBytes, PLACE, type PlaceOptions } from "./path.ts";
import { isServiceError, type LeftEntry, leftOf, resultOf, type SentEntry, type TreeResult } from "./tree-entry.ts";
import { type SentEntries, TreeSender, type Write } from "./tree-sender.ts";
import { sourceFailure, untilAnswered } from "./write.ts";

/** Limit on the failed entries that a result lists. */
const NAMED_FAILURES = 100;

/** Options of `writeTree`. */
export interface WriteTreeOptions extends PlaceOptions {
  /** Create the directory, with missing parents. Default: false. */
  readonly parents?: boolean | undefined;
  /** Replace existing entries other than directories. Default: false, so that an existing entry counts as failed. */
  readonly overwrite?: boolean | undefined;
  /** Keep setuid, setgid and sticky bits. Default: false. */
  readonly specialBits?: boolean | undefined;
  /** Reject at the first entry that fails. Default: false, so that the result lists failed entries. */
  readonly failFast?: boolean | undefined;
  /**
   * "all" (default): the call resolves once everything is on the disk. "none": the call does not wait for the disk, and
   * the guest's kernel writes the data later.
   */
  readonly sync?: "all" | "none" | undefined;
  /**
   * Called for each entry that fails, as soon as the agent reports it or its content cannot be read. The first 100
   * failed entries are also in `failures` of the result. Older agents report at most 100 entries, and only at the end.
   */
  readonly onFailure?: ((failure: LeftEntry) => void) | undefined;
  /** Called with the numbers of entries and bytes that the agent has written so far. */
  readonly onProgress?: ((done: { readonly entries: number; readonly bytes: number }) => void) | undefined;
}

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
 * Writes entries below a directory of the guest in one stream. Takes the first entry from the iterator only after the
 * agent has opened the directory, so that no entry is consumed if the agent refuses the call. (An older agent refuses
 * it with UNIMPLEMENTED.) Rejects with GuestError; if the iterator failed, its error is the cause.
 *
 * @param onSent called for each entry when its name and attributes are queued for sending; the agent counts entries as
 *   done in the same order
 */
export async function writeTree(
  channel: Channel,
  path: GuestPath,
  entries: SentEntries,
  options: WriteTreeOptions = {},
  onSent?: (entry: SentEntry) => void,
): Promise<TreeResult> {
  checkOptions("the options of writeTree()", options, WRITE_TREE);
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
  // Once the agent has answered, stop waiting for writes: after the end of a call, the callback of a later write never
  // runs.
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
    // An iterator of Node listens for errors only from its first next(), and the call may fail during the first write.
    const answer = answers.next();
    answer.catch(() => answered.resolve());
    await write(encoded(WriteTreeRequestSchema, { part: { case: "header", value } }));
    const first = await answer;
    if (first.done !== true) take(first.value);
    const { holes = false, itemFailures = false } = result ?? {};
    takes = { holes, itemFailures };
    const followed = follow().finally(() => answered.resolve());
    // Mark this rejection as handled, because it is awaited only after all entries were sent.
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
  // An agent before 0.4.0 reports failures only at the end, so call `onFailure` for them now.
  if (!takes.itemFailures) for (const failed of result.failures) onFailure?.(leftOf(failed));
  return unsent.with(resultOf(result.items, result.failed, result.failures));
}

/** Collects entries whose content the client could not read. */
class Unsent {
  /** The error that the caller's onFailure has thrown. */
  callbackError: { readonly error: unknown } | undefined;
  readonly #options: WriteTreeOptions;
  readonly #first: LeftEntry[] = [];
  #count = 0;

  constructor(options: WriteTreeOptions) {
    this.#options = options;
  }

  /**
   * Adds a failed entry. With `failFast`, throws the entry's error instead. Also rethrows an error that the caller's
   * onFailure throws.
   */
  add({ name }: SentEntry, error: EntryError): void {
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

  /** Returns the agent's result with the failed entries of this object added. */
  with({ entries, failed, failures }: TreeResult): TreeResult {
    const named = [...this.#first, ...failures].slice(0, NAMED_FAILURES);
    return { entries, failed: failed + this.#count, failures: named };
  }
}
