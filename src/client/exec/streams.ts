import { Readable, Writable } from "node:stream";

/** Largest piece of standard input in one frame. */
const CHUNK_BYTES = 64 * 1024;

/** Receiver of a command's standard input. `sent` runs when the next piece may follow. */
export interface InputFrames {
  stdin(bytes: Uint8Array, sent: () => void): void;
  stdinClose(): void;
  /** No more input will come, although it did not end. */
  abandon(reason: Error): void;
}

/**
 * Standard input of a command. Writes after the command's end are dropped. Destroying it with an error cancels the
 * command, so that it does not take a part for the whole; destroying it without one ends the input.
 */
export function inputStream(frames: InputFrames): Writable {
  const stream = new Writable({
    decodeStrings: true,
    write(bytes: Buffer, _encoding, done): void {
      writePieces(frames, bytes, done);
    },
    final(done): void {
      frames.stdinClose();
      done();
    },
    destroy(error, done): void {
      if (error !== null) frames.abandon(error);
      else if (!this.writableFinished) frames.stdinClose();
      done(error);
    },
  });
  // No listener is needed: a command may end before it has read everything.
  stream.on("error", () => undefined);
  return stream;
}

function writePieces(frames: InputFrames, bytes: Buffer, done: () => void): void {
  const rest = bytes.subarray(CHUNK_BYTES);
  frames.stdin(bytes.subarray(0, CHUNK_BYTES), rest.length === 0 ? done : () => writePieces(frames, rest, done));
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
    // Nobody has to listen: the failure is also that of ExecProcess.wait().
    this.on("error", () => undefined);
  }

  /** True while it should get no more. Never true once destroyed: then it drops what arrives. */
  get full(): boolean {
    return this.#full && !this.destroyed;
  }

  /** Adds the next bytes. */
  accept(bytes: Uint8Array): void {
    if (!this.destroyed) this.#full = !this.push(bytes);
    // A stream that flows hands them over at once.
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
