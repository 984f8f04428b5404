import { EventLoopTurns } from "./event-loop.ts";
import { type Piece, withZeros } from "./holes.ts";
import { LocalTarEntry } from "./local-tree.ts";
import type { TarEntry } from "./read.ts";
import { once, type ReceivedEntry, recordedError } from "./thread/entry-receiver.ts";
import type { SentEntry } from "./thread/entry-sender.ts";
import type { ReadOptions } from "./thread/jobs.ts";
import { LocalItems } from "./thread/local-items.ts";
import { readingEnded } from "./thread/read-local.ts";

type Step = IteratorResult<ReceivedEntry, undefined>;

/** Reads local files with synchronous calls on the calling thread, and has the same interface as ThreadReading. */
export class DirectReading implements Disposable {
  readonly #items: LocalItems;
  readonly #sent: Generator<SentEntry, void>;
  readonly #turns = new EventLoopTurns();
  #isEnded = false;

  constructor(root: string | Buffer, options: ReadOptions) {
    this.#items = new LocalItems(root, options);
    this.#sent = this.#items.all();
  }

  /**
   * Returns the next entry. If very many entries are skipped before it, returns a promise instead, so that the event
   * loop can run meanwhile.
   */
  next(): Step | Promise<Step> {
    for (;;) {
      if (this.#isEnded) throw readingEnded();
      const { value, done } = this.#sent.next();
      if (done === true) return { done, value: undefined };
      if (value !== undefined) return { done: false, value: this.#received(value) };
      if (this.#turns.isDue) return this.#turns.next().then(() => this.next());
    }
  }

  [Symbol.dispose](): void {
    this.#isEnded = true;
    this.#sent.return();
  }

  #received(sent: Exclude<SentEntry, undefined>): ReceivedEntry {
    if (sent instanceof LocalTarEntry) return { entry: this.#entryOf(sent) };
    if (!("kind" in sent)) return { entry: { ...sent, sparse: false } };
    if (sent.kind === "skipped") return { skippedBytes: sent.size };
    return { failure: { name: sent.name, error: recordedError(sent.data) } };
  }

  #entryOf(local: LocalTarEntry): TarEntry & { readonly sparse: boolean } {
    const { type, name, linkTarget, mode, uid, gid, size, mtimeSeconds, mtimeNs, sparse, isSmall } = local;
    const head = { type, name, linkTarget, mode, uid, gid, size, mtimeSeconds, mtimeNs, sparse };
    if (type !== "file" || isSmall) {
      const readAll = (): Buffer => this.#whole(local);
      return { ...head, readAll, content: { [Symbol.asyncIterator]: () => once(readAll()) } };
    }
    const pieces = { [Symbol.asyncIterator]: () => this.#pieces(local) };
    return { ...head, pieces, content: withZeros(pieces) };
  }

  #whole(local: LocalTarEntry): Buffer {
    try {
      const bytes = Buffer.allocUnsafe(local.size);
      local.readInto(bytes);
      return bytes;
    } catch (error) {
      this.#items.forget(local.name);
      throw error;
    }
  }

  async *#pieces(local: LocalTarEntry): AsyncGenerator<Piece> {
    try {
      yield* local.pieces();
    } catch (error) {
      this.#items.forget(local.name);
      throw error;
    }
  }
}
