import { constants } from "node:os";
import type { BufferPool, BufferPoolSizes, Errno, SocketReceiver, StreamSocket } from "../../domain/index.ts";
import { type Addon, errnoName, type FdWatch, READABLE, WRITABLE } from "../../native/index.ts";

/** Buffers that all sockets are read into. */
export const SOCKET_BUFFERS: BufferPoolSizes = {
  fullBytes: 64 * 1024,
  tightBytes: 16 * 1024,
  tightAboveBytes: 4 * 1024 * 1024,
  keptBytes: 512 * 1024,
  keptAtRestBytes: 0,
};

/** Chunks that a receiver may hold before the socket is read no further; one while memory is tight. */
const HELD_CHUNKS = 4;
/** Most reads in one turn of the event loop, so that one busy socket does not starve the others. */
const READS_PER_TURN = 4;
/** Smaller chunks are copied, so that a few bytes do not tie up a whole buffer. */
const COPY_BELOW_BYTES = 4096;
const BOTH: number = READABLE | WRITABLE;

interface PendingWrite {
  bytes: Uint8Array;
  readonly done: () => void;
}

/** A stream socket over a non-blocking descriptor, at the pace of receiver and peer. Owns the descriptor. */
export class FdSocket implements StreamSocket {
  readonly #addon: Addon;
  readonly #pool: BufferPool;
  readonly #fd: number;
  readonly #watch: FdWatch;
  /** Events that are watched for. */
  #mask = 0;
  #receiver: SocketReceiver | undefined;
  #isPaused = false;
  #hasEnded = false;
  #heldChunks = 0;
  readonly #pending: PendingWrite[] = [];
  #endAsked = false;
  /** Why nothing can be written any more. */
  #broken: Errno | undefined;
  #closed = false;
  #leave: (() => void) | undefined;
  #connecting: ((errno: Errno | undefined) => void) | undefined;

  constructor(addon: Addon, pool: BufferPool, fd: number) {
    this.#addon = addon;
    this.#pool = pool;
    this.#fd = fd;
    this.#watch = new addon.FdWatch(fd, (events) => this.#onEvents(events));
  }

  /** Resolves once a connection attempt has succeeded (with none) or failed. Never for a socket that was closed before. */
  connected(): Promise<Errno | undefined> {
    return new Promise((resolve) => {
      this.#connecting = resolve;
      this.#rearm();
    });
  }

  start(receiver: SocketReceiver): void {
    this.#receiver = receiver;
    this.#leave = this.#pool.enter();
    this.#rearm();
  }

  pause(): void {
    this.#isPaused = true;
    this.#rearm();
  }

  resume(): void {
    this.#isPaused = false;
    this.#goOn();
  }

  write(bytes: Uint8Array, done: () => void): void {
    if (this.#closed || this.#broken !== undefined || bytes.length === 0) {
      done();
      return;
    }
    this.#pending.push({ bytes, done });
    if (this.#pending.length === 1) this.#writePending();
  }

  end(): void {
    this.#endAsked = true;
    if (this.#pending.length === 0) this.#endWriting();
  }

  reset(): void {
    if (!this.#closed) this.#addon.resetAtClose(this.#fd);
    this.close();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#watch.close();
    this.#dropPending();
    this.#leave?.();
  }

  #onEvents(events: number): void {
    // libuv reports an error as both, and ends the watch (uv_poll_t).
    if (events === BOTH) this.#mask = 0;
    if (this.#connecting !== undefined) {
      const result = this.#addon.connected(this.#fd);
      this.#connecting(result < 0 ? errnoName(result) : undefined);
      this.#connecting = undefined;
    } else {
      if ((events & WRITABLE) !== 0) this.#writePending();
      if ((events & READABLE) !== 0) this.#read();
    }
    this.#rearm();
  }

  #mayRead(): boolean {
    const isWanted = this.#receiver !== undefined && !this.#isPaused && !this.#hasEnded && !this.#closed;
    return isWanted && this.#heldChunks < (this.#pool.tight ? 1 : HELD_CHUNKS);
  }

  #rearm(): void {
    if (this.#closed) return;
    const writes = this.#pending.length > 0 || this.#connecting !== undefined;
    const wanted = (this.#mayRead() ? READABLE : 0) | (writes ? WRITABLE : 0);
    if (wanted === this.#mask) return;
    this.#mask = wanted;
    this.#watch.set(wanted);
  }

  #read(): void {
    for (let reads = 0; reads < READS_PER_TURN && this.#mayRead(); reads++) {
      const buffer = this.#pool.lend();
      const { length } = buffer.bytes;
      const count = this.#addon.read(this.#fd, buffer.bytes, 0, length);
      if (count <= 0) {
        buffer.release();
        this.#foundNone(count);
        return;
      }
      this.#deliver(buffer.bytes.subarray(0, count), () => buffer.release());
      // Nothing more to read now. Only the next read shows whether the connection is broken.
      if (count < length && this.#broken === undefined) return;
    }
  }

  #deliver(bytes: Uint8Array, release: () => void): void {
    const isSmall = bytes.length < COPY_BELOW_BYTES;
    const chunk = isSmall ? bytes.slice() : bytes;
    if (isSmall) release();
    let held = true;
    this.#heldChunks++;
    this.#receiver?.chunk(chunk, () => {
      if (!held) return;
      held = false;
      if (!isSmall) release();
      this.#heldChunks--;
      this.#goOn();
    });
  }

  /** There is room again. A broken connection may cause no further event. */
  #goOn(): void {
    if (this.#broken !== undefined) this.#read();
    this.#rearm();
  }

  #foundNone(count: number): void {
    if (count === -constants.errno.EAGAIN && this.#broken === undefined) return;
    this.#hasEnded = true;
    if (count < 0) this.#broken ??= errnoName(count);
    if (this.#broken === undefined) this.#receiver?.end();
    else this.#fail(this.#broken);
  }

  #writePending(): void {
    for (let write = this.#pending[0]; write !== undefined; write = this.#pending[0]) {
      const count = this.#addon.write(this.#fd, write.bytes, 0, write.bytes.length);
      if (count === -constants.errno.EAGAIN) break;
      if (count < 0) {
        this.#breakOff(errnoName(count));
        return;
      }
      write.bytes = write.bytes.subarray(count);
      if (write.bytes.length === 0) this.#pending.shift()?.done();
    }
    if (this.#pending.length === 0 && this.#endAsked) this.#endWriting();
    this.#rearm();
  }

  /** Nothing can be written. Received bytes are delivered first. */
  #breakOff(errno: Errno): void {
    this.#broken = errno;
    this.#dropPending();
    if (this.#hasEnded) this.#fail(errno);
    else this.#read();
    this.#rearm();
  }

  #fail(errno: Errno): void {
    this.#dropPending();
    this.#receiver?.failed(errno);
  }

  #endWriting(): void {
    if (!this.#closed && this.#broken === undefined) this.#addon.endWriting(this.#fd);
  }

  #dropPending(): void {
    for (const { done } of this.#pending.splice(0)) done();
  }
}
