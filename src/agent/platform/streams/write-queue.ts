import type { Addon } from "../../native/index.ts";

interface Waiting {
  bytes: Uint8Array;
  readonly done: () => void;
}

/** Bytes that wait to be written to a non-blocking descriptor. */
export class WriteQueue {
  readonly #addon: Addon;
  readonly #fd: number;
  readonly #waiting: Waiting[] = [];

  constructor(addon: Addon, fd: number) {
    this.#addon = addon;
    this.#fd = fd;
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0;
  }

  /** Calls `done` once the bytes are written or dropped. `bytes` must not be empty. */
  add(bytes: Uint8Array, done: () => void): void {
    this.#waiting.push({ bytes, done });
  }

  /**
   * Writes as much as possible. Returns 0 if everything was written, otherwise the negated errno (EAGAIN: try again
   * later).
   */
  flush(): number {
    for (let write = this.#waiting[0]; write !== undefined; write = this.#waiting[0]) {
      const count = this.#addon.write(this.#fd, write.bytes, 0, write.bytes.length);
      if (count < 0) return count;
      write.bytes = write.bytes.subarray(count);
      if (write.bytes.length === 0) this.#waiting.shift()?.done();
    }
    return 0;
  }

  drop(): void {
    for (const { done } of this.#waiting.splice(0)) done();
  }
}
