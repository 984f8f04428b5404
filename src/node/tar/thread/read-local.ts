import type { MessagePort } from "node:worker_threads";
import { CopyThread } from "./copy-thread.ts";
import { EntryReceiver, type ReceivedEntry } from "./entry-receiver.ts";
import { filterLink } from "./filter-link.ts";
import type { OfferedEntry, ReadOptions } from "./jobs.ts";
import { errorOf } from "./plain-error.ts";

/** Decides which entries of a directory to read. */
export type Choose = (entries: readonly OfferedEntry[]) => Promise<readonly boolean[]>;

/** Implements `readLocal` with a thread. Can be disposed of even while a file system does not answer. */
export class ThreadReading implements Disposable {
  readonly #thread: CopyThread;
  readonly #filter: MessagePort | undefined;
  readonly #received: EntryReceiver;

  constructor(root: string | Buffer, options: Omit<ReadOptions, "filter">, choose?: Choose) {
    const received = new EntryReceiver(({ sizeBytes: bytes }) => this.#thread.send({ kind: "acknowledged", bytes }));
    this.#received = received;
    const filter = choose && filterLink(choose, (error) => received.end({ error }));
    this.#filter = filter?.port;
    this.#thread = new CopyThread(
      { kind: "read", root, options: { ...options, filter: filter?.link } },
      {
        onReport: (report) => {
          if (report.kind === "batch") received.accept(report.batch);
          if (report.kind === "end") received.end(report.error && { error: errorOf(report.error) });
        },
        onFailure: (error) => received.end({ error }),
      },
      filter === undefined ? [] : [filter.link.port],
    );
  }

  /** Returns the next entry: directly if the thread has already sent it, otherwise as a promise. */
  next(): IteratorResult<ReceivedEntry, undefined> | Promise<IteratorResult<ReceivedEntry, undefined>> {
    return this.#received.next();
  }

  [Symbol.dispose](): void {
    this.#thread[Symbol.dispose]();
    this.#filter?.close();
    this.#received.end({ error: readingEnded() });
  }
}

/** Creates the error for a read of a local directory after its reader was disposed of. */
export function readingEnded(): Error {
  return new Error("the local directory was not read to its end, because its reader was closed");
}

/** Returns the total size of all files below a local directory, in bytes. Entries that cannot be read do not count. */
export async function measureLocal(root: string | Buffer): Promise<number> {
  const { promise, resolve, reject } = settled<number>();
  using _ = new CopyThread(
    { kind: "measure", root },
    {
      onReport: (report) => {
        if (report.kind === "measured") resolve(report.totalBytes);
      },
      onFailure: reject,
    },
  );
  return await promise;
}

/** Does what Promise.withResolvers does, because Node 20 lacks that function. */
function settled<Value>(): {
  readonly promise: Promise<Value>;
  readonly resolve: (value: Value) => void;
  readonly reject: (error: unknown) => void;
} {
  let resolve: (value: Value) => void = () => undefined;
  let reject: (error: unknown) => void = () => undefined;
  const promise = new Promise<Value>((...both) => ([resolve, reject] = both));
  return { promise, resolve, reject };
}
