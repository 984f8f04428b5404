import type { Socket } from "node:net";

/**
 * Size of the buffer for each read, and therefore the most that a tunnel sends in one frame. With Node's own buffers,
 * one read returns at most a third of this.
 */
export const READ_BYTES: number = 192 * 1024;
/**
 * A read of fewer bytes than this is copied into a new buffer of its exact size. Otherwise, a queue of small reads
 * would consist of large, mostly empty buffers, and use many times the memory of its data.
 */
const LARGE_BYTES = READ_BYTES / 4;
/** Limit on the free buffers that are kept for reuse. The queue of one tunnel can contain this many buffers. */
const FREE_BUFFERS = 6;

/**
 * The private fields for the option `onread` of Node's sockets. The option is public only for sockets that connect, not
 * for accepted ones.
 */
interface OnRead {
  readonly _handle?: { useUserBuffer?(buffer: Uint8Array): void } | null;
  [key: symbol]: unknown;
}

/**
 * Makes accepted sockets read into large buffers, which are reused. By default Node allocates a new, smaller buffer for
 * each read, and the kernel acknowledges each read to the peer. If a version of Node keeps `onread` elsewhere, Node's
 * own reads are used.
 */
export class LargeReads {
  readonly #free: ArrayBufferLike[] = [];

  /** Makes a socket read into large buffers. Programs use the socket as an ordinary stream all the same. */
  begin(socket: Socket): void {
    const inside = socket as unknown as OnRead;
    const { _handle: handle } = inside;
    const key = (name: string): symbol | undefined =>
      Object.getOwnPropertySymbols(inside).find(({ description }) => description === name);
    const [buffer, callback, generator] = [key("kBuffer"), key("kBufferCb"), key("kBufferGen")];
    if (buffer === undefined || callback === undefined || generator === undefined) return;
    if (typeof handle?.useUserBuffer !== "function") return;
    const first = this.#next();
    inside[buffer] = first;
    inside[callback] = (sizeBytes: number, memory: Buffer): boolean => {
      const bytes = memory.subarray(0, sizeBytes);
      if (sizeBytes >= LARGE_BYTES) return socket.push(bytes);
      this.release(memory);
      return socket.push(Buffer.from(bytes));
    };
    inside[generator] = () => this.#next();
    handle.useUserBuffer(first);
  }

  /** Puts the buffer of these bytes back into the pool. The bytes must not be used any more. */
  release({ buffer }: Uint8Array): void {
    if (buffer.byteLength === READ_BYTES && this.#free.length < FREE_BUFFERS) this.#free.push(buffer);
  }

  #next(): Buffer {
    return Buffer.from(this.#free.pop() ?? new ArrayBuffer(READ_BYTES));
  }
}
