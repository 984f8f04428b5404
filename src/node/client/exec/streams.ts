import { Readable, Writable } from "node:stream";
import type { ExecWire } from "./wire.ts";

/** Largest piece of standard input in one frame. */
const CHUNK_BYTES = 64 * 1024;

/**
 * Standard input of a command, as frames for its wire. Sends its end only if `isWanted`. Writes after the command's end
 * are dropped. Destroying it without an error ends the input. Destroying it with one calls `abandon`, so that the
 * command does not take a part for the whole.
 */
export function inputStream(wire: ExecWire, isWanted: boolean, abandon: (reason: Error) => void): Writable {
  // Asynchronous: a wire that drops input asks for the next piece at once, and the calls would nest without end.
  const writePieces = async (bytes: Buffer, done: () => void): Promise<void> => {
    // A destroyed stream has sent its end already.
    for (let at = 0; at < bytes.length && !stream.destroyed; at += CHUNK_BYTES) {
      const value = bytes.subarray(at, at + CHUNK_BYTES);
      await new Promise<void>((sent) => wire.send({ case: "stdin", value }, sent));
    }
    done();
  };
  const close = (): void => {
    if (isWanted) wire.send({ case: "stdinClose", value: {} });
  };
  const stream = new Writable({
    decodeStrings: true,
    write(bytes: Buffer, _encoding, done): void {
      void writePieces(bytes, done);
    },
    final(done): void {
      close();
      done();
    },
    destroy(error, done): void {
      if (error !== null) abandon(error);
      else if (!this.writableFinished) close();
      done(error);
    },
  });
  // No listener is needed: a command may end before it has read everything.
  stream.on("error", () => undefined);
  return stream;
}

/** One output stream of a command. */
export class OutputStream extends Readable {
  readonly #onRoom: () => void;
  readonly #onRead: (() => void) | undefined;
  #full = false;

  /**
   * @param onRoom called when a full stream has been read from or was given up
   * @param onRead called when bytes have been read
   */
  constructor(onRoom: () => void, onRead?: () => void) {
    super({ highWaterMark: 256 * 1024 });
    this.#onRoom = onRoom;
    this.#onRead = onRead;
    // An unhandled "error" event would end the program; ExecProcess.wait() reports the failure too.
    this.on("error", () => undefined);
  }

  /** True while it should get no more bytes. Never true once destroyed: it then drops what arrives. */
  get full(): boolean {
    return this.#full && !this.destroyed;
  }

  /** Adds the next bytes. */
  accept(bytes: Uint8Array): void {
    if (!this.destroyed) this.#full = !this.push(bytes);
    // A flowing stream passes them on at once.
    this.#onRead?.();
  }

  override read(size?: number): unknown {
    const bytes: unknown = super.read(size);
    if (bytes !== null) this.#onRead?.();
    return bytes;
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
