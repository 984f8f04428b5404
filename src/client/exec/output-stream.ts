import { Readable } from "node:stream";

/** One output stream of a command. Tells its owner when it has no room for more. */
export class OutputStream extends Readable {
  readonly #onRoom: () => void;
  #full = false;

  /** @param onRoom called when a full stream has been read from or was given up */
  constructor(onRoom: () => void) {
    super({ highWaterMark: 256 * 1024 });
    this.#onRoom = onRoom;
    // Nobody has to listen: the failure is also that of ExecProcess.wait().
    this.on("error", () => undefined);
  }

  /** More would only pile up. Never true of a stream that was destroyed: what arrives for it is dropped. */
  get full(): boolean {
    return this.#full && !this.destroyed;
  }

  /** Takes the next bytes. */
  accept(bytes: Uint8Array): void {
    if (!this.destroyed) this.#full = !this.push(bytes);
  }

  override _read(): void {
    if (!this.#full) return;
    this.#full = false;
    this.#onRoom();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#onRoom();
    callback(error);
  }
}
