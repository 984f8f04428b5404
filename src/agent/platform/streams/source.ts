import { fstatSync } from "node:fs";
import { constants } from "node:os";

import type { BufferPool, BufferPoolSizes, ByteReceiver, ByteSource, ByteStore } from "../../domain/index.ts";
import { type Addon, READABLE } from "../../native/index.ts";
import { HeldChunks } from "./held-chunks.ts";
import { StreamWatch } from "./stream-watch.ts";
import { WidePipes } from "./wide-pipes.ts";

/** Capacity of a pipe if the kernel's default was not changed (pipe(7)): the most that one read can return. */
const PIPE_BYTES = 64 * 1024;

/** Buffers that the streams of all children share. Two busy streams need four of them. */
export const STREAM_BUFFERS: BufferPoolSizes = {
  fullBytes: PIPE_BYTES,
  tightBytes: 16 * 1024,
  tightAboveBytes: 4 * 1024 * 1024,
  keptBytes: 256 * 1024,
  keptAtRestBytes: 256 * 1024,
};

export type StreamKind = "pipe" | "terminal";

/**
 * If children are starting now, returns a promise that resolves when each of them has started or failed; otherwise
 * returns undefined. A child that is starting may have copies of other children's streams.
 */
export type StartsSettled = () => Promise<void> | undefined;

/** Number of unreleased chunks at which the source stops reading. */
const HELD_CHUNKS = 4;
/**
 * Largest number of chunks per tick, so that one busy stream does not starve others. A chunk of a terminal costs more
 * than a chunk of a pipe, because it takes sixteen read(2) calls.
 */
const CHUNKS_PER_TICK: Readonly<Record<StreamKind, number>> = { pipe: 4, terminal: 1 };
/**
 * Pauses between polls for EOF after the exit of the process. One poll is not enough, because a background process that
 * was just forked keeps the pipe open for a moment, until it redirects its output.
 */
const EOF_POLLS_MS: readonly number[] = [1, 2, 4, 6, 7];
/**
 * Pause between polls for EOF while a child of the agent is starting: that child has a copy of the pipe until its
 * execve(2).
 */
const START_POLL_MS = 5;
/** Upper bound for the bytes in the buffers of a terminal (8 KiB, plus 4 KiB in the line discipline). */
const TERMINAL_BOUND_BYTES = 128 * 1024;

/**
 * State of a source that reads the rest of the stream after the process has exited. EOF means that read(2) returns 0,
 * or EIO for a terminal.
 */
interface Drain {
  /**
   * Number of undelivered bytes that the exited process may have written. For a pipe it is exact. For a terminal it is
   * an upper bound, because some output may not be in the terminal's buffer yet. Each read makes the kernel move such
   * output to the buffer first. So if a read finds nothing, all output was delivered.
   */
  leftBytes: number;
  readonly resolve: (complete: boolean) => void;
  /**
   * Whether the source polls for EOF. It begins to poll when all bytes of the process were delivered, to find out
   * whether another process still has the stream open.
   */
  isPolling: boolean;
  /**
   * True until all children that were starting when the drain began have started or failed. They may have copies of the
   * pipe.
   */
  startsInFlight: boolean;
}

type State = "idle" | "reading" | "stopped" | "ended" | "closed";

/** Reads a non-blocking descriptor as fast as its receiver allows. Owns the descriptor. */
export class FdSource implements ByteSource {
  readonly #addon: Addon;
  readonly #pool: BufferPool;
  readonly #kind: StreamKind;
  readonly #fd: number;
  readonly #startsSettled: StartsSettled;
  readonly #pipes: WidePipes;
  readonly #watch: StreamWatch;
  #state: State = "idle";
  #receiver: ByteReceiver | undefined;
  #store: ByteStore | undefined;
  /** Whether reading has stopped because the store was full. The store calls `resume` when it has room again. */
  #storeIsFull = false;
  readonly #held: HeldChunks;
  #scheduled = false;
  #drain: Drain | undefined;

  constructor(
    addon: Addon,
    pool: BufferPool,
    kind: StreamKind,
    fd: number,
    startsSettled: StartsSettled = () => undefined,
    pipes: WidePipes = new WidePipes(addon),
  ) {
    this.#addon = addon;
    this.#pool = pool;
    this.#kind = kind;
    this.#fd = fd;
    this.#startsSettled = startsSettled;
    this.#pipes = pipes;
    this.#held = new HeldChunks(pool, HELD_CHUNKS, () => this.#rearm());
    // An internal error closes only this stream. Its writer then gets SIGPIPE.
    this.#watch = new StreamWatch(
      addon,
      fd,
      () => this.#readable(),
      () => this.close(),
    );
  }

  start(receiver: ByteReceiver): void {
    if (this.#state !== "idle") return;
    this.#receiver = receiver;
    this.#state = "reading";
    this.#rearm();
  }

  startInto(store: ByteStore): void {
    if (this.#state !== "idle") return;
    this.#store = store;
    this.#state = "reading";
    this.#rearm();
  }

  resume(): void {
    this.#storeIsFull = false;
    this.#rearm();
  }

  drain(): Promise<boolean> {
    if (this.#state !== "reading") return Promise.resolve(this.#state === "ended");
    return new Promise((resolve) => {
      const leftBytes = this.#kind === "pipe" ? this.#addon.bytesAvailable(this.#fd) : TERMINAL_BOUND_BYTES;
      const settled = this.#startsSettled();
      const drain: Drain = { leftBytes, resolve, isPolling: false, startsInFlight: settled !== undefined };
      void settled?.then(() => {
        drain.startsInFlight = false;
      });
      this.#drain = drain;
      this.#delivered(0);
      this.#rearm();
    });
  }

  /**
   * Polls a pipe for EOF a few times. While other children are starting, continues to poll, because they have a copy of
   * the stream. Reads the rest as soon as a poll shows that the last writer has closed the stream. Stops reading if no
   * poll shows this.
   */
  #pollForEof(drain: Drain, polls: number = 0): void {
    const lastPauseMs = this.#kind === "pipe" ? EOF_POLLS_MS[polls] : undefined;
    const pauseMs = lastPauseMs ?? (drain.startsInFlight ? START_POLL_MS : undefined);
    if (pauseMs === undefined) {
      this.#stop("stopped");
      return;
    }
    drain.isPolling = true;
    setTimeout(() => {
      if (this.#drain !== drain) return;
      drain.isPolling = !this.#addon.hungUp(this.#fd);
      if (drain.isPolling) this.#pollForEof(drain, polls + 1);
      else this.#rearm();
    }, pauseMs);
  }

  /** Sets the size of a terminal. Does nothing for a pipe, and after `close`. */
  resize(cols: number, rows: number): void {
    if (this.#kind === "terminal" && this.#state !== "closed") this.#addon.resizeTerminal(this.#fd, cols, rows);
  }

  /**
   * Sends a signal to the foreground process group of a terminal. Returns false if the stream is a pipe, or if the
   * kernel refuses the signal.
   */
  signalForeground(signal: number): boolean {
    const isTerminal = this.#kind === "terminal" && this.#state !== "closed";
    return isTerminal && this.#addon.signalForeground(this.#fd, signal) === 0;
  }

  /** Closes the source. If a pipe still has a writer, returns a duplicate of the read end; the caller owns it. */
  leave(): number | undefined {
    const isHeld = this.#kind === "pipe" && this.#isOpen() && !this.#addon.hungUp(this.#fd);
    const copy = isHeld ? this.#addon.duplicate(this.#fd) : -1;
    this.close();
    return copy < 0 ? undefined : copy;
  }

  /** Inode of the pipe, by which it appears in /proc; undefined for a terminal, and after EOF. */
  pipeInode(): number | undefined {
    return this.#kind === "pipe" && this.#isOpen() ? fstatSync(this.#fd).ino : undefined;
  }

  close(): void {
    if (this.#state === "closed") return;
    this.#stop("closed");
    this.#pipes.forget(this.#fd);
    this.#watch.close();
  }

  #isOpen(): boolean {
    return this.#state !== "ended" && this.#state !== "closed";
  }

  /**
   * Stops reading, or closes the source. This ends a drain: `drain` resolves with true if the stream has ended,
   * otherwise with false.
   */
  #stop(state: "stopped" | "ended" | "closed"): void {
    this.#state = state;
    this.#rearm();
    this.#drain?.resolve(state === "ended");
    this.#drain = undefined;
  }

  #mayRead(): boolean {
    return this.#state === "reading" && this.#drain?.isPolling !== true && !this.#storeIsFull && this.#held.hasRoom;
  }

  /**
   * Arranges the next read if the receiver has room: watches the descriptor, or during a drain schedules a read. A
   * watch does not suffice for a drain, because it would never report that a terminal has no more output.
   */
  #rearm(): void {
    if (this.#state === "closed") return;
    const draining = this.#drain !== undefined;
    if (draining && this.#mayRead()) this.#schedule();
    this.#watch.set(!draining && this.#mayRead() ? READABLE : 0);
  }

  /**
   * Terminal output arrives in small pieces. It is read at the end of the tick, so that one message contains several
   * pieces.
   */
  #readable(): void {
    if (this.#kind === "terminal") this.#schedule();
    else this.#read();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#watch.run(() => this.#read());
    });
  }

  #read(): void {
    for (let chunks = 0; chunks < CHUNKS_PER_TICK[this.#kind] && this.#mayRead(); chunks++) {
      if (this.#store !== undefined) {
        if (!this.#readInto(this.#store)) break;
        continue;
      }
      const buffer = this.#pool.acquire();
      const { length } = buffer.bytes;
      const count = this.#fill(buffer.bytes, 0, length);
      if (count <= 0) {
        buffer.release();
        this.#onNoData(count);
        break;
      }
      this.#held.give(buffer, count, (bytes, release) => this.#receiver?.chunk(bytes, release));
      this.#delivered(count);
      if (this.#isEmptied(count, length)) break;
    }
    this.#rearm();
  }

  /** Returns whether there may be more to read. */
  #readInto(store: ByteStore): boolean {
    const room = Math.min(store.room(), STREAM_BUFFERS.fullBytes);
    this.#storeIsFull = room === 0;
    if (this.#storeIsFull) return false;
    const count = this.#fill(store.bytes, store.position, room);
    if (count > 0) {
      store.filled(count);
      this.#delivered(count);
    } else {
      this.#onNoData(count);
    }
    return count > 0 && !this.#isEmptied(count, room);
  }

  /**
   * Whether the last read has emptied the descriptor, which is the case if it did not fill the buffer. Always false
   * during a drain: the descriptor is not watched then, so the caller must go on until a read returns nothing.
   */
  #isEmptied(count: number, length: number): boolean {
    return count < length && this.#drain === undefined;
  }

  /**
   * Fills the buffer with several reads, because each chunk becomes a message, and a terminal returns at most 4 KiB per
   * read. The result is like that of read(2).
   */
  #fill(bytes: Uint8Array, at: number, length: number): number {
    let filled = this.#addon.read(this.#fd, bytes, at, length);
    if (this.#kind === "pipe") {
      if (filled === PIPE_BYTES) this.#pipes.widen(this.#fd);
      return filled;
    }
    if (filled <= 0) return filled;
    while (filled < length) {
      const more = this.#addon.read(this.#fd, bytes, at + filled, length - filled);
      // An error need not be handled here: the read in the next tick returns it again.
      if (more <= 0) break;
      filled += more;
    }
    return filled;
  }

  /**
   * Called after `count` bytes were delivered. During a drain, when the last byte of the exited process was delivered,
   * polls for EOF to find out whether another process still has the stream open.
   */
  #delivered(count: number): void {
    const drain = this.#drain;
    if (drain === undefined) return;
    drain.leftBytes -= count;
    if (drain.leftBytes > 0 || drain.isPolling || (this.#kind === "pipe" && this.#addon.hungUp(this.#fd))) return;
    this.#pollForEof(drain);
  }

  #onNoData(result: number): void {
    if (result === -constants.errno.EAGAIN) {
      this.#delivered(Infinity);
      return;
    }
    /* The read returned EOF (EIO for a terminal), or an error after which the descriptor cannot be read any more. */
    this.#receiver?.end();
    if (this.#state === "reading") this.#stop("ended");
  }
}
