import { constants } from "node:os";
import type { BufferPool, BufferPoolSizes, Errno, SocketReceiver, StreamSocket } from "../../domain/index.ts";
import { type Addon, errnoIn, errnoName, READABLE, WRITABLE } from "../../native/index.ts";
import { HeldChunks } from "./held-chunks.ts";
import { StreamWatch } from "./stream-watch.ts";
import { WriteQueue } from "./write-queue.ts";

/** Buffers shared by all sockets. */
export const SOCKET_BUFFERS: BufferPoolSizes = {
  fullBytes: 256 * 1024,
  tightBytes: 16 * 1024,
  tightAboveBytes: 4 * 1024 * 1024,
  keptBytes: 512 * 1024,
  keptAtRestBytes: 0,
};

/**
 * Largest number of chunks that the receiver may keep unreleased: while it has this many (or one, if memory is tight),
 * reading stops.
 */
const HELD_CHUNKS = 2;
/** Largest number of bytes per read. With the header of its message, such a chunk fills whole HTTP/2 frames. */
const MAX_READ_BYTES: number = SOCKET_BUFFERS.fullBytes - 16;
/**
 * Smallest size of a read. A read may exceed the receiver's room, because a small frame takes as much CPU time as a
 * large one. The receiver tolerates an excess of at most 64 KiB.
 */
const MIN_READ_BYTES: number = 63 * 1024;

/** A stream socket on a non-blocking descriptor, with flow control in both directions. Owns the descriptor. */
export class FdSocket implements StreamSocket {
  readonly #addon: Addon;
  readonly #pool: BufferPool;
  readonly #fd: number;
  readonly #watch: StreamWatch;
  #receiver: SocketReceiver | undefined;
  #hasEnded = false;
  readonly #held: HeldChunks;
  readonly #queue: WriteQueue;
  #endRequested = false;
  /** The error that ended writing. */
  #broken: Errno | undefined;
  #closed = false;
  #leave: (() => void) | undefined;
  #connecting: ((errno: Errno | undefined) => void) | undefined;

  constructor(addon: Addon, pool: BufferPool, fd: number) {
    this.#addon = addon;
    this.#pool = pool;
    this.#fd = fd;
    this.#held = new HeldChunks(pool, HELD_CHUNKS, () => this.resume());
    this.#queue = new WriteQueue(addon, fd);
    // An internal error breaks only this connection.
    this.#watch = new StreamWatch(
      addon,
      fd,
      (events) => this.#handle(events),
      () => this.#fail("EIO"),
    );
  }

  /**
   * Resolves with undefined once the connection is established, or with the errno of the failure. Never resolves for a
   * socket that was closed before.
   */
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

  /** Continues to read. If the connection is broken, reads at once, because epoll may report no further event. */
  resume(): void {
    if (this.#broken !== undefined) this.#read();
    this.#rearm();
  }

  write(bytes: Uint8Array, done: () => void): void {
    if (this.#closed || this.#broken !== undefined || bytes.length === 0) {
      done();
      return;
    }
    const isFirst = this.#queue.isEmpty;
    this.#queue.add(bytes, done);
    if (isFirst) this.#writePending();
  }

  end(): void {
    this.#endRequested = true;
    if (this.#queue.isEmpty) this.#endWriting();
  }

  reset(): void {
    if (!this.#closed) this.#addon.resetAtClose(this.#fd);
    this.close();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#watch.close();
    this.#queue.drop();
    this.#leave?.();
  }

  #handle(events: number): void {
    const isSpurious = (events & READABLE) !== 0 && !this.#mayRead();
    if (this.#connecting !== undefined) {
      this.#connecting(errnoIn(this.#addon.connected(this.#fd)));
      this.#connecting = undefined;
    } else {
      if ((events & WRITABLE) !== 0) this.#writePending();
      if ((events & READABLE) !== 0) this.#read();
    }
    this.#rearm(isSpurious);
  }

  #mayRead(): boolean {
    const roomBytes = this.#hasEnded || this.#closed ? 0 : (this.#receiver?.room() ?? 0);
    return roomBytes > 0 && this.#held.hasRoom;
  }

  /**
   * Sets the events to watch. When reading pauses, READABLE stays in the watch at first: often reading resumes before a
   * READABLE event, which saves three system calls. READABLE is removed if such an event occurs during the pause, or if
   * WRITABLE is added or removed.
   */
  #rearm(isSpurious = false): void {
    if (this.#closed) return;
    const writes = !this.#queue.isEmpty || this.#connecting !== undefined;
    const wanted = (this.#mayRead() ? READABLE : 0) | (writes ? WRITABLE : 0);
    if (isSpurious || (wanted | READABLE) !== this.#watch.mask) this.#watch.set(wanted);
  }

  #read(): void {
    if (!this.#mayRead()) return;
    const buffer = this.#pool.acquire();
    const roomBytes = Math.max(MIN_READ_BYTES, this.#receiver?.room() ?? 0);
    const count = this.#addon.read(this.#fd, buffer.bytes, 0, Math.min(buffer.bytes.length, MAX_READ_BYTES, roomBytes));
    if (count > 0) {
      this.#held.give(buffer, count, (bytes, release) => this.#receiver?.chunk(bytes, release));
    } else {
      buffer.release();
      this.#onNoData(count);
    }
  }

  #onNoData(count: number): void {
    if (count === -constants.errno.EAGAIN && this.#broken === undefined) return;
    this.#hasEnded = true;
    if (count < 0) this.#broken ??= errnoName(count);
    if (this.#broken === undefined) this.#receiver?.end();
    else this.#fail(this.#broken);
  }

  #writePending(): void {
    const result = this.#queue.flush();
    if (result < 0 && result !== -constants.errno.EAGAIN) {
      this.#failAfterRead(errnoName(result));
      return;
    }
    if (this.#queue.isEmpty && this.#endRequested) this.#endWriting();
    this.#rearm();
  }

  /** Handles a failed write. Bytes that were received before are delivered before the receiver gets the error. */
  #failAfterRead(errno: Errno): void {
    this.#broken = errno;
    this.#queue.drop();
    if (this.#hasEnded) this.#fail(errno);
    else this.#read();
    this.#rearm();
  }

  #fail(errno: Errno): void {
    this.#queue.drop();
    this.#receiver?.failed(errno);
  }

  #endWriting(): void {
    if (!this.#closed && this.#broken === undefined) this.#addon.endWriting(this.#fd);
  }
}
