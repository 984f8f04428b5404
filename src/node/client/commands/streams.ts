import { Readable, Writable } from "node:stream";
import { invalidOption } from "../errors/errors.ts";
import type { ExecWire } from "./wire.ts";

/** Limit on the bytes of standard input in one frame. */
const CHUNK_BYTES = 64 * 1024;

/**
 * Creates the stream for a command's standard input. Sends everything that is written to the stream to the agent, and
 * drops writes after the command's end.
 *
 * When the stream ends or is destroyed without an error, it sends the end of input, unless `isWanted` is false. When
 * the stream is destroyed with an error, it calls `abandon` instead, so that the command does not mistake a part of the
 * input for all of it.
 */
export function inputStream(wire: ExecWire, isWanted: boolean, abandon: (reason: Error) => void): Writable {
  // Await each piece. Do not send the next piece in the callback of `send`: when `send` drops a piece, it calls the
  // callback synchronously, so the nested calls would overflow the stack.
  const writePieces = async (bytes: Buffer, done: () => void): Promise<void> => {
    // Send no more pieces when the stream is destroyed, because it has then already sent the end of input.
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
    // If the command has no standard input, a write must fail. A destroyed stream would ignore the write, so do not
    // destroy the stream when it ends.
    autoDestroy: isWanted,
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
  // A command often ends before it has read all of its input, which is an error of this stream. Without this listener,
  // the error would crash a caller that does not listen for it.
  stream.on("error", (error) => {
    if (!isWanted) abandon(error);
  });
  return stream;
}

/** A stream of a command's output, whose pieces are text or bytes. */
export interface OutputReadable<Output extends string | Buffer> extends Readable {
  [Symbol.asyncIterator](): NodeJS.AsyncIterator<Output, undefined>;
}

interface OutputParts {
  /** Whether the stream yields text (UTF-8) instead of bytes. */
  readonly isText: boolean;
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
  readonly #text: TextPieces | undefined;
  #full = false;

  /**
   * @param parts.onRoom called when the reader has made room in a full stream, and when the stream is destroyed
   * @param parts.onRead called when bytes have been read; given only for a kept command, which counts the bytes that
   *   its reader has read
   * @param parts.onLeft called when the reader leaves a loop over the stream before its end
   */
  constructor({ isText, onRoom, onRead, onLeft }: OutputParts) {
    super({ highWaterMark: 256 * 1024 });
    if (isText) super.setEncoding("utf8");
    this.#text = isText ? new TextPieces(onRead !== undefined) : undefined;
    this.#onRoom = onRoom;
    this.#onRead = onRead;
    this.#onLeft = onLeft;
    // Without this listener, an "error" event would end the program. GuestProcess.wait() reports the failure in any
    // case.
    this.on("error", () => undefined);
  }

  /** Whether the source of this stream should pause. False for a destroyed stream, which drops all further bytes. */
  get full(): boolean {
    return this.#full && !this.destroyed;
  }

  /** Number of received bytes that the reader has not read. */
  get unreadBytes(): number {
    return this.#text === undefined ? this.readableLength : this.#text.unreadBytes(this.readableLength);
  }

  /** Passes received bytes on to the reader, as text if this is a stream of text. */
  accept(bytes: Uint8Array): void {
    if (!this.destroyed) this.#add(this.#text === undefined ? bytes : this.#text.write(bytes));
    // Report the bytes as read, because the reader of a flowing stream has already received them.
    this.#onRead?.();
  }

  /** Ends the stream. Must be called after the last bytes were added. */
  end(): void {
    const rest = this.#text?.end() ?? "";
    if (!this.destroyed) this.#add(rest);
    this.push(null);
  }

  /**
   * Sets the encoding of a stream that yields bytes. Throws GuestError if the stream already yields UTF-8 text and
   * another encoding is requested. Also throws GuestError if the stream belongs to a kept command and yields bytes: the
   * offsets in its output are counted in bytes, which decoded text would not match.
   */
  override setEncoding(encoding: BufferEncoding): this {
    const isUtf8 = /^utf-?8$/i.test(encoding);
    if (this.#text !== undefined && isUtf8) return this;
    if (this.#text === undefined && this.#onRead === undefined) return super.setEncoding(encoding);
    const message =
      this.#text === undefined
        ? `setEncoding() cannot decode a kept command that was started with encoding: "buffer"; start or attach without this option to read text`
        : `the output is already decoded as UTF-8; to read it as ${encoding}, start the command with encoding: "buffer"`;
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

  #add(piece: Uint8Array | string): void {
    if (piece.length > 0) this.#full = !(typeof piece === "string" ? this.push(piece, "utf8") : this.push(piece));
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

/**
 * Decodes the pieces of an output as UTF-8. If a piece ends within a character, the character's first bytes are held
 * back until the rest arrives, and count as unread.
 */
class TextPieces {
  /** Whether to record the size of each decoded piece, which `unreadBytes` requires. */
  readonly #isCounted: boolean;
  /** The first bytes of an incomplete character. */
  #held: Buffer = Buffer.alloc(0);
  /** Decoded pieces that the reader has not completely read. */
  readonly #pieces: { readonly text: string; readonly bytes: number }[] = [];
  #bytes = 0;
  #characters = 0;

  constructor(isCounted: boolean) {
    this.#isCounted = isCounted;
  }

  write(bytes: Uint8Array): string {
    const all = this.#held.length === 0 ? bufferOf(bytes) : Buffer.concat([this.#held, bytes]);
    const end = completeEnd(all);
    // Copy the incomplete character, because a view of its bytes would keep the memory of the whole frame in use.
    this.#held = Buffer.from(all.subarray(end));
    return this.#piece(all.toString("utf8", 0, end), end);
  }

  /** Returns U+FFFD if the output ends within a character, as every decoder does. */
  end(): string {
    const rest = this.#held;
    this.#held = Buffer.alloc(0);
    return this.#piece(rest.toString(), rest.length);
  }

  /** @param unread number of characters (UTF-16 code units) that the reader has not read */
  unreadBytes(unread: number): number {
    for (;;) {
      const [first] = this.#pieces;
      if (first === undefined) return this.#bytes + this.#held.length;
      const read = this.#characters - unread;
      if (read < first.text.length) return this.#bytes - readBytes(first, read) + this.#held.length;
      this.#pieces.shift();
      this.#characters -= first.text.length;
      this.#bytes -= first.bytes;
    }
  }

  #piece(text: string, bytes: number): string {
    if (!this.#isCounted || bytes === 0) return text;
    this.#pieces.push({ text, bytes });
    this.#bytes += bytes;
    this.#characters += text.length;
    return text;
  }
}

/**
 * Returns how many bytes the first `characters` characters of a piece had. This number is unknown if the piece
 * contained invalid UTF-8. In that case returns 0, so that the whole piece counts as unread.
 */
function readBytes({ text, bytes }: { readonly text: string; readonly bytes: number }, characters: number): number {
  if (characters === 0 || Buffer.byteLength(text) !== bytes) return 0;
  const first = text.slice(0, characters);
  // If the text ends with the first half of a surrogate pair, do not count that half: its character was not read
  // completely.
  return Buffer.byteLength(/[\uD800-\uDBFF]$/.test(first) ? first.slice(0, -1) : first);
}

/** Returns the offset at which the last complete character ends. Bytes that are not UTF-8 count as complete. */
function completeEnd(bytes: Buffer): number {
  for (let at = bytes.length - 1; at >= 0 && at > bytes.length - 4; at--) {
    const byte = bytes[at] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    // Length of the UTF-8 sequence whose first byte this is (RFC 3629, 3).
    const length = byte >= 0xf8 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return at + length > bytes.length ? at : bytes.length;
  }
  return bytes.length;
}

function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}
