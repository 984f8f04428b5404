import { constants } from "node:os";

import type { ByteSink } from "../../domain/index.ts";
import { type Addon, type FdWatch, WRITABLE } from "../../native/index.ts";
import type { StreamKind } from "./source.ts";
import { WidePipes } from "./wide-pipes.ts";

interface PendingWrite {
  bytes: Uint8Array;
  readonly done: () => void;
}

type State = "open" | "ending" | "ended" | "closed";

const NEWLINE = 0x0a;
const NO_BYTES: Uint8Array = new Uint8Array();

/** Writes to a non-blocking descriptor at the pace of its reader. Owns the descriptor. */
export class FdSink implements ByteSink {
  readonly #addon: Addon;
  readonly #kind: StreamKind;
  readonly #fd: number;
  readonly #pipes: WidePipes;
  readonly #watch: FdWatch;
  #pending: PendingWrite[] = [];
  #state: State = "open";
  #lastByte = NEWLINE;
  #watching = false;

  constructor(addon: Addon, kind: StreamKind, fd: number, pipes: WidePipes = new WidePipes(addon)) {
    this.#addon = addon;
    this.#pipes = pipes;
    this.#kind = kind;
    this.#fd = fd;
    this.#watch = new addon.FdWatch(fd, () => this.#writePending());
  }

  write(bytes: Uint8Array): Promise<void> | undefined {
    if (this.#state !== "open") return undefined;
    const rest = this.#pending.length === 0 ? this.#writeSome(bytes) : bytes;
    if (rest.length === 0) return undefined;
    return new Promise((done) => {
      this.#pending.push({ bytes: rest, done });
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
    this.#pipes.leave(this.#fd);
    this.#watch.close();
    const dropped = this.#pending;
    this.#pending = [];
    for (const write of dropped) write.done();
  }

  /** Writes what the descriptor takes now, and watches it where something is left. Returns the rest. */
  #writeSome(bytes: Uint8Array): Uint8Array {
    let rest = bytes;
    while (rest.length > 0) {
      const count = this.#addon.write(this.#fd, rest, 0, rest.length);
      if (count === -constants.errno.EAGAIN) {
        if (this.#kind === "pipe" && this.#pipes.widen(this.#fd)) continue;
        this.#watchIf(true);
        return rest;
      }
      if (count < 0) {
        this.close(); /* EPIPE, or EIO of a terminal: nobody reads any more. */
        return NO_BYTES;
      }
      this.#lastByte = rest[count - 1] ?? this.#lastByte;
      rest = count === rest.length ? NO_BYTES : rest.subarray(count);
    }
    return rest;
  }

  #writePending(): void {
    for (let write = this.#pending[0]; write !== undefined; write = this.#pending[0]) {
      write.bytes = this.#writeSome(write.bytes);
      if (write.bytes.length > 0) return;
      this.#pending.shift()?.done();
    }
    this.#watchIf(false);
    if (this.#state === "ending") this.#finish();
  }

  /** Sets the watch only if it changes: stopping one costs a system call, even if there is none. */
  #watchIf(wanted: boolean): void {
    if (wanted === this.#watching) return;
    this.#watching = wanted;
    this.#watch.set(wanted ? WRITABLE : 0);
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
