import { constants } from "node:os";

import type { ByteSink } from "../../domain/index.ts";
import { type Addon, WRITABLE } from "../../native/index.ts";
import type { StreamKind } from "./source.ts";
import { StreamWatch } from "./stream-watch.ts";
import { WidePipes } from "./wide-pipes.ts";
import { WriteQueue } from "./write-queue.ts";

type State = "open" | "ending" | "ended" | "closed";

const NEWLINE = 0x0a;

/** Writes to a non-blocking descriptor as fast as its reader allows. Owns the descriptor. */
export class FdSink implements ByteSink {
  readonly #addon: Addon;
  readonly #kind: StreamKind;
  readonly #fd: number;
  readonly #pipes: WidePipes;
  readonly #watch: StreamWatch;
  readonly #queue: WriteQueue;
  #state: State = "open";
  #lastByte = NEWLINE;

  constructor(addon: Addon, kind: StreamKind, fd: number, pipes: WidePipes = new WidePipes(addon)) {
    this.#addon = addon;
    this.#pipes = pipes;
    this.#kind = kind;
    this.#fd = fd;
    this.#queue = new WriteQueue(addon, fd);
    // An internal error closes only this stream, as if its reader had closed it.
    this.#watch = new StreamWatch(
      addon,
      fd,
      () => this.#flush(),
      () => this.close(),
    );
  }

  write(bytes: Uint8Array): Promise<void> | undefined {
    const last = bytes.at(-1);
    if (this.#state !== "open" || last === undefined) return undefined;
    let isWritten = false;
    let wake: (() => void) | undefined;
    const isFirst = this.#queue.isEmpty;
    this.#queue.add(bytes, () => {
      isWritten = true;
      wake?.();
    });
    this.#lastByte = last;
    if (isFirst) this.#flush();
    return isWritten ? undefined : new Promise((resolve) => (wake = resolve));
  }

  end(): void {
    if (this.#state !== "open") return;
    this.#state = "ending";
    if (this.#queue.isEmpty) this.#finish();
  }

  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#pipes.forget(this.#fd);
    this.#watch.close();
    this.#queue.drop();
  }

  /** Writes as much as possible, and watches the descriptor if something is left. */
  #flush(): void {
    let result = this.#queue.flush();
    while (result === -constants.errno.EAGAIN && this.#kind === "pipe" && this.#pipes.widen(this.#fd))
      result = this.#queue.flush();
    // Every other error means that the reader is gone: EPIPE for a pipe, EIO for a terminal.
    if (result < 0 && result !== -constants.errno.EAGAIN) this.close();
    else this.#watch.set(result < 0 ? WRITABLE : 0);
    if (this.#state === "ending" && this.#queue.isEmpty) this.#finish();
  }

  /** Closes a pipe. For a terminal, types its current end-of-file character, if it has one. */
  #finish(): void {
    this.#state = "ended";
    if (this.#kind === "pipe") {
      this.close();
      return;
    }
    const eof = this.#addon.terminalEofByte(this.#fd);
    if (eof < 0) return;
    /*
     * In the middle of a line, the first end-of-file character only passes the line to the reader. The second one makes
     * the reader's next read(2) return 0, which means EOF.
     */
    const keys = Uint8Array.from(this.#lastByte === NEWLINE ? [eof] : [eof, eof]);
    this.#queue.add(keys, () => {});
    this.#flush();
  }
}
