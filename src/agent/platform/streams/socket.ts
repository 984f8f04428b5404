import { constants } from "node:os";
import type { BufferPool, BufferPoolSizes, Errno, SocketReceiver, StreamSocket } from "../../domain/index.ts";
import { type Addon, errnoName, type FdWatch, READABLE, WRITABLE } from "../../native/index.ts";

/** Buffers that all sockets are read into. */
export const SOCKET_BUFFERS: BufferPoolSizes = {
  fullBytes: 256 * 1024,
  tightBytes: 16 * 1024,
  tightAboveBytes: 4 * 1024 * 1024,
  keptBytes: 512 * 1024,
  keptAtRestBytes: 0,
};

/** Chunks that a receiver may hold before the socket is read no further; one while memory is tight. */
const HELD_CHUNKS = 2;
/**
 * The most of a read, and of an event loop's turn: with its head it fills HTTP/2's frames, and no rest is written
 * alone.
 */
const MOST_BYTES: number = SOCKET_BUFFERS.fullBytes - 16;
/** The least, where there is any room: a small frame costs as much. Below the 64 KiB by which windows may be passed. */
const LEAST_BYTES: number = 63 * 1024;
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

  /** Resolves once a connection attempt has succeeded (with none) or failed. Never for a socket closed before. */
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

  /** A broken connection may cause no further event. */
  resume(): void {
    if (this.#broken !== undefined) this.#read();
    this.#rearm();
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
    const isInVain = (events & READABLE) !== 0 && !this.#mayRead();
    if (this.#connecting !== undefined) {
      const result = this.#addon.connected(this.#fd);
      this.#connecting(result < 0 ? errnoName(result) : undefined);
      this.#connecting = undefined;
    } else {
      if ((events & WRITABLE) !== 0) this.#writePending();
      if ((events & READABLE) !== 0) this.#read();
    }
    this.#rearm(isInVain);
  }

  #mayRead(): boolean {
    const roomBytes = this.#hasEnded || this.#closed ? 0 : (this.#receiver?.room() ?? 0);
    return roomBytes > 0 && this.#heldChunks < (this.#pool.tight ? 1 : HELD_CHUNKS);
  }

  /** To stop and restart a watch is three system calls: where only reading stops, it waits for an event in vain. */
  #rearm(isInVain = false): void {
    if (this.#closed) return;
    const writes = this.#pending.length > 0 || this.#connecting !== undefined;
    const wanted = (this.#mayRead() ? READABLE : 0) | (writes ? WRITABLE : 0);
    if (wanted === this.#mask || (!isInVain && (wanted | READABLE) === this.#mask)) return;
    this.#mask = wanted;
    this.#watch.set(wanted);
  }

  #read(): void {
    if (!this.#mayRead()) return;
    const buffer = this.#pool.lend();
    const roomBytes = Math.max(LEAST_BYTES, this.#receiver?.room() ?? 0);
    const count = this.#addon.read(this.#fd, buffer.bytes, 0, Math.min(buffer.bytes.length, MOST_BYTES, roomBytes));
    if (count > 0) {
      this.#deliver(buffer.bytes.subarray(0, count), () => buffer.release());
    } else {
      buffer.release();
      this.#foundNone(count);
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
      this.resume();
    });
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
