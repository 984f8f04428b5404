import { constants } from "node:os";

import type { ByteSink } from "../../domain/index.ts";
import { type Addon, type FdWatch, WRITABLE } from "../../native/index.ts";
import type { StreamKind } from "./source.ts";

interface PendingWrite {
  bytes: Uint8Array;
  readonly done: () => void;
}

type State = "open" | "ending" | "ended" | "closed";

const NEWLINE = 0x0a;

/** Writes to a non-blocking descriptor at the pace of its reader. Owns the descriptor. */
export class FdSink implements ByteSink {
  readonly #addon: Addon;
  readonly #kind: StreamKind;
  readonly #fd: number;
  readonly #watch: FdWatch;
  #pending: PendingWrite[] = [];
  #state: State = "open";
  #lastByte = NEWLINE;

  constructor(addon: Addon, kind: StreamKind, fd: number) {
    this.#addon = addon;
    this.#kind = kind;
    this.#fd = fd;
    this.#watch = new addon.FdWatch(fd, () => this.#writePending());
  }

  write(bytes: Uint8Array): Promise<void> {
    if (this.#state !== "open" || bytes.length === 0) return Promise.resolve();
    return new Promise((done) => {
      this.#pending.push({ bytes, done });
      if (this.#pending.length === 1) this.#writePending();
    });
  }

  end(): void {
    if (this.#state !== "open") return;
    this.#state = "ending";
    if (this.#pending.length === 0) this.#finish();
  }

  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#watch.close();
    const dropped = this.#pending;
    this.#pending = [];
    for (const write of dropped) write.done();
  }

  #writePending(): void {
    for (let write = this.#pending[0]; write !== undefined; write = this.#pending[0]) {
      const count = this.#addon.write(this.#fd, write.bytes, 0, write.bytes.length);
      if (count === -constants.errno.EAGAIN) {
        this.#watch.set(WRITABLE);
        return;
      }
      if (count < 0) {
        this.close(); /* EPIPE, or EIO of a terminal: nobody reads any more. */
        return;
      }
      this.#lastByte = write.bytes[count - 1] ?? this.#lastByte;
      write.bytes = write.bytes.subarray(count);
      if (write.bytes.length === 0) this.#pending.shift()?.done();
    }
    this.#watch.set(0);
    if (this.#state === "ending") this.#finish();
  }

  /** Closes a pipe; types the end-of-file character into a terminal, if it has one now. */
  #finish(): void {
    this.#state = "ended";
    if (this.#kind === "pipe") {
      this.close();
      return;
    }
    const eof = this.#addon.terminalEofByte(this.#fd);
    if (eof < 0) return;
    /* In the middle of a line the first one only delivers the line; the second makes the reader's next read empty. */
    const keys = Uint8Array.from(this.#lastByte === NEWLINE ? [eof] : [eof, eof]);
    this.#pending.push({ bytes: keys, done: () => {} });
    this.#writePending();
  }
}
