import { Readable, Writable } from "node:stream";
import { invalidOption } from "../errors/errors.ts";
import type { ExecWire } from "./wire.ts";

/** Limit on the standard input in one frame. */
const CHUNK_BYTES = 64 * 1024;

/**
 * Creates the standard input of a command, which sends frames on its wire. Sends the end of input only if `isWanted`.
 * Drops writes after the command's end. Destroying the stream without an error ends the input. Destroying it with an
 * error calls `abandon`, so that the command does not mistake a part of the input for all of it.
 */
export function inputStream(wire: ExecWire, isWanted: boolean, abandon: (reason: Error) => void): Writable {
  // This function is asynchronous, because a wire that drops its input requests the next piece at once: without a
  // pause, the nested calls would overflow the stack.
  const writePieces = async (bytes: Buffer, done: () => void): Promise<void> => {
    // A destroyed stream has already sent the end of input.
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
  // A command often ends before it has read all of its input. Without this listener, that would crash a caller that
  // listens for no errors.
  stream.on("error", () => undefined);
  return stream;
}

/** Callbacks of an output stream. */
interface OutputParts {
  readonly onRoom: () => void;
  readonly onRead: (() => void) | undefined;
  readonly onLeft: () => void;
}

/**
 * An output stream of a command. Leaving a `for await` loop over the stream before its end calls `onLeft`, which ends
 * the command or detaches from it.
 */
export class OutputStream extends Readable {
  readonly #onRoom: () => void;
  readonly #onRead: (() => void) | undefined;
  readonly #onLeft: () => void;
  #full = false;

  /**
   * @param parts.onRoom called when a full stream has been read from, and when it is destroyed
   * @param parts.onRead called when bytes have been read; given only for a kept command, which counts the bytes that
   *   its reader has read
   * @param parts.onLeft called when the reader leaves a loop over the stream before its end
   */
  constructor({ onRoom, onRead, onLeft }: OutputParts) {
    super({ highWaterMark: 256 * 1024 });
    this.#onRoom = onRoom;
    this.#onRead = onRead;
    this.#onLeft = onLeft;
    // An unhandled "error" event would end the program, and GuestProcess.wait() reports the failure anyway.
    this.on("error", () => undefined);
  }

  /** Whether the wire should be paused. False for a destroyed stream, which drops everything that arrives. */
  get full(): boolean {
    return this.#full && !this.destroyed;
  }

  /** Adds the next received bytes. */
  accept(bytes: Uint8Array): void {
    if (!this.destroyed) this.#full = !this.push(bytes);
    // A flowing stream has passed the bytes to its reader already.
    this.#onRead?.();
  }

  /** Throws GuestError for a kept command, because the stream would count characters, but positions count bytes. */
  override setEncoding(encoding: BufferEncoding): this {
    if (this.#onRead === undefined) return super.setEncoding(encoding);
    const message = "the output of a kept command must be read as bytes: use lines(), or a StringDecoder of your own";
    throw invalidOption("encoding", message);
  }

  override [Symbol.asyncIterator](): NodeJS.AsyncIterator<unknown, undefined> {
    const chunks = super[Symbol.asyncIterator]() as NodeJS.AsyncIterator<unknown, undefined>;
    const leave = (): Promise<IteratorResult<unknown, undefined>> => {
      if (!this.readableEnded && !this.errored) this.#onLeft();
      return chunks.return?.() ?? Promise.resolve({ done: true, value: undefined });
    };
    return {
      next: () => chunks.next(),
      return: leave,
      [Symbol.asyncIterator]() {
        return this;
      },
      [Symbol.asyncDispose]: async () => void (await leave()),
    };
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
