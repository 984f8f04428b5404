import type { Socket } from "node:net";

/** One read is one frame of a tunnel. Node's own reads take a third of it. */
export const READ_BYTES: number = 192 * 1024;
/** Smaller reads are copied: a queue of them would hold many times its bytes. */
const LARGE_BYTES = READ_BYTES / 4;
/** Free buffers that are kept: as many as a tunnel's queue can hold. */
const FREE_BUFFERS = 6;

/** Where Node's sockets keep the option `onread`, which is public for sockets that connect. */
interface OnRead {
  readonly _handle?: { useUserBuffer?(buffer: Uint8Array): void } | null;
  [key: symbol]: unknown;
}

/**
 * Lets accepted sockets read into large buffers that are used again: Node allocates one for each read, and the kernel
 * acknowledges each. Falls back to Node's own reads where a version of Node keeps `onread` elsewhere.
 */
export class LargeReads {
  readonly #free: ArrayBufferLike[] = [];

  /** Has a socket read into them; its stream is used as before. */
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

  /** Takes back bytes that a socket has read, and that nobody needs any more. */
  release({ buffer }: Uint8Array): void {
    if (buffer.byteLength === READ_BYTES && this.#free.length < FREE_BUFFERS) this.#free.push(buffer);
  }

  #next(): Buffer {
    return Buffer.from(this.#free.pop() ?? new ArrayBuffer(READ_BYTES));
  }
}
