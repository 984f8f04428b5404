import type { MessagePort } from "node:worker_threads";
import { EntryError } from "../entry-error.ts";
import type { TarEntry } from "../read.ts";
import type { Unpacked, UnpackOptions } from "../unpack.ts";
import { CopyThread } from "./copy-thread.ts";
import { wholeEntry } from "./entry-receiver.ts";
import { EntrySender } from "./entry-sender.ts";
import type { EntryMessage, Report } from "./jobs.ts";
import { errorOf, plainError } from "./plain-error.ts";
import { BatchReader } from "./records.ts";

/**
 * Time that the thread gets, when the unpacking fails, to remove the file that it was writing. A removal takes less
 * than a millisecond. Without a limit, the caller would wait forever for a file system that does not answer.
 */
const CLEAN_UP_MS = 5_000;

/** Options of `unpack`. */
export interface ThreadUnpackOptions extends UnpackOptions {
  /** When aborted, the call rejects with the signal's reason, even while a file system does not answer. */
  readonly signal?: AbortSignal | undefined;
}

/** Implements `unpack` with a thread. */
export async function unpackInThread(
  root: string | Buffer,
  entries: Iterable<TarEntry> | AsyncIterable<TarEntry>,
  options: ThreadUnpackOptions,
): Promise<Unpacked> {
  return new Promise((...settle) => new Unpacking(root, options, settle).take(entries));
}

type Settle = [resolve: (unpacked: Unpacked) => void, reject: (error: unknown) => void];

class Unpacking {
  readonly #options: ThreadUnpackOptions;
  readonly #thread: CopyThread;
  readonly #sender: EntrySender;
  readonly #settle: Settle;
  /**
   * The error that ends the unpacking: the error of the iterator of entries or of a callback, or the reason of the
   * aborted signal.
   */
  #failure: { readonly error: unknown } | undefined;
  #cleanUp: NodeJS.Timeout | undefined;
  #isEnded = false;

  constructor(root: string | Buffer, options: ThreadUnpackOptions, settle: Settle) {
    const { keepOwners, uid, gid, umask, keepExisting, missingFile, onFailure, signal } = options;
    this.#options = options;
    this.#settle = settle;
    const job = { root, owners: { keepOwners, uid, gid }, umask, keepExisting } as const;
    this.#thread = new CopyThread(
      { ...job, kind: "unpack", hasMissingFile: missingFile !== undefined, failFast: onFailure === undefined },
      { onReport: (report) => this.#onReport(report), onFailure: (error) => this.#end(() => this.#reject(error)) },
    );
    this.#sender = new EntrySender((batch) => this.#thread.send({ kind: "batch", batch }, [batch.bytes]));
    signal?.addEventListener("abort", this.#onAbort);
  }

  take(entries: Iterable<TarEntry> | AsyncIterable<TarEntry>): void {
    this.#sender.send(entries).then(
      () => this.#thread.send({ kind: "end" }),
      (error: unknown) => this.#stop(error),
    );
  }

  readonly #onAbort = (): void => {
    const { signal } = this.#options;
    this.#stop(signal?.reason);
    // Do not wait until the thread has removed an incomplete file.
    this.#thread.release();
    this.#cleanUp?.unref();
    this.#reject(signal?.reason);
  };

  #onReport(report: Report): void {
    if (report.kind === "acknowledged") this.#sender.acknowledge(report.bytes, report.memory);
    else if (report.kind === "failure") this.#report(report);
    else if (report.kind === "missing") void this.#sendMissing(report);
    else if (report.kind === "unpacked") {
      const { files, bytes, error, keepExisting = [] } = report;
      for (const name of keepExisting) this.#options.keepExisting?.add(name);
      this.#end(() => (error === undefined ? this.#settle[0]({ files, bytes }) : this.#reject(errorOf(error))));
    }
  }

  #report({ name, error }: Extract<Report, { kind: "failure" }>): void {
    const failed = errorOf(error);
    try {
      if (this.#failure === undefined && failed instanceof EntryError)
        this.#options.onFailure?.(Buffer.from(name), failed);
    } catch (thrown) {
      this.#stop(thrown);
    }
  }

  async #sendMissing({
    link,
    port,
  }: {
    readonly link: Extract<Report, { kind: "missing" }>["link"];
    readonly port: MessagePort;
  }): Promise<void> {
    const post = (message: EntryMessage, transferred: ArrayBuffer[] = []): void =>
      port.postMessage(message, transferred);
    const sender = new EntrySender((batch) => post({ kind: "batch", batch }, [batch.bytes]));
    port.on("message", (message: EntryMessage) => {
      if (message.kind === "acknowledged") sender.acknowledge(message.bytes, message.memory);
    });
    port.on("close", () => sender.stop());
    try {
      const record = new BatchReader(link).next();
      const file = record && (await this.#options.missingFile?.(wholeEntry(record)));
      await sender.send(file === undefined ? [] : [file]);
      post({ kind: "end" });
    } catch (error) {
      this.#stop(error);
      post({ kind: "end", error: plainError(error) });
    }
  }

  /**
   * Makes the unpacking fail with an error on this side, such as a failure of the source of the entries. The thread
   * first removes an incomplete file.
   */
  #stop(error: unknown): void {
    if (this.#failure !== undefined || this.#isEnded) return;
    this.#failure = { error };
    this.#sender.stop();
    this.#thread.send({ kind: "end", error: { type: "Error", message: "the stream of entries failed" } });
    this.#cleanUp = setTimeout(() => this.#end(() => this.#reject(error)), CLEAN_UP_MS);
  }

  #end(settle: () => void): void {
    this.#isEnded = true;
    clearTimeout(this.#cleanUp);
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    this.#sender.stop();
    this.#thread[Symbol.dispose]();
    settle();
  }

  /**
   * Rejects with the given error of the thread. If `#stop` was called, rejects with the error that `#stop` received,
   * because that error has caused the error of the thread.
   */
  #reject(error: unknown): void {
    this.#settle[1](this.#failure === undefined ? error : this.#failure.error);
  }
}
