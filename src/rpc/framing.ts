import { AgentError } from "../domain/index.ts";

/** Bytes before every message: a compression flag and the length (gRPC over HTTP/2, Length-Prefixed-Message). */
export const PREFIX_BYTES = 5;

/** The error for a message over the limit, in either direction. */
export function messageTooLarge(sizeBytes: number, limitBytes: number): AgentError {
  return new AgentError(
    "RESOURCE_EXHAUSTED",
    "MESSAGE_TOO_LARGE",
    `a message of ${sizeBytes} bytes is over the limit of ${limitBytes} bytes; split it`,
    { sizeBytes: String(sizeBytes), limitBytes: String(limitBytes) },
  );
}

/** The error for bytes that are not what the method takes. */
export function malformedMessage(problem: string, cause?: unknown): AgentError {
  return new AgentError("INVALID_ARGUMENT", "MALFORMED_MESSAGE", problem, {}, cause);
}

/**
 * Cuts a byte stream into messages, however the bytes are split. A message that lies within one chunk is a view of it,
 * another is copied once into a buffer of its own.
 */
export class MessageReader {
  readonly #limitBytes: number;
  readonly #buffers: MessageBuffers;
  /** Of a prefix that comes in pieces: those that are there. */
  #prefix: Uint8Array | undefined;
  #prefixFilled = 0;
  /** Of the message that is not whole yet: the length, and its first bytes until more of it comes. */
  #messageBytes = 0;
  #begin: Uint8Array | undefined;
  #message: Uint8Array | undefined;
  #messageFilled = 0;

  constructor(limitBytes: number, buffers: MessageBuffers) {
    this.#limitBytes = limitBytes;
    this.#buffers = buffers;
  }

  /** Bytes held of a message that is not whole yet. */
  get heldBytes(): number {
    return this.#begin?.length ?? (this.#message === undefined ? 0 : this.#messageFilled);
  }

  /** Forgets a message that is not whole yet: nobody wants it any more. */
  drop(): void {
    this.#begin = undefined;
    this.#message = undefined;
  }

  /**
   * Takes the next bytes and hands on the messages that they complete, in order. Throws AgentError at a prefix that is
   * refused, before anything of its message is stored; the reader is of no use afterwards.
   */
  push(chunk: Uint8Array, deliver: (message: Uint8Array) => void): void {
    let at = 0;
    while (at < chunk.length) {
      const message = this.#begun();
      if (message !== undefined) {
        at = this.#fill(message, chunk, at, deliver);
        continue;
      }
      let length: number;
      if (this.#prefixFilled === 0 && chunk.length - at >= PREFIX_BYTES) {
        length = this.#readPrefix(chunk, at);
        at += PREFIX_BYTES;
      } else {
        const taken = Math.min(PREFIX_BYTES - this.#prefixFilled, chunk.length - at);
        this.#prefix ??= new Uint8Array(PREFIX_BYTES);
        this.#prefix.set(chunk.subarray(at, at + taken), this.#prefixFilled);
        this.#prefixFilled += taken;
        at += taken;
        if (this.#prefixFilled < PREFIX_BYTES) return;
        this.#prefixFilled = 0;
        length = this.#readPrefix(this.#prefix, 0);
      }
      if (chunk.length - at >= length) {
        deliver(chunk.subarray(at, at + length));
        at += length;
      } else {
        this.#messageBytes = length;
        this.#begin = chunk.subarray(at);
        return;
      }
    }
  }

  /** To be called at the end of the stream. Throws AgentError when it ends within a message. */
  end(): void {
    if (this.#prefixFilled > 0 || this.#begin !== undefined || this.#message !== undefined) {
      throw malformedMessage("the request stream ends within a message");
    }
  }

  /**
   * The message that is not whole yet. It gets its buffer only when more of it comes: until then the one before it is
   * being used, and of many calls at once each would hold two.
   */
  #begun(): Uint8Array | undefined {
    const begin = this.#begin;
    if (begin === undefined) return this.#message;
    this.#begin = undefined;
    this.#message = this.#buffers.take(this.#messageBytes);
    this.#message.set(begin);
    this.#messageFilled = begin.length;
    return this.#message;
  }

  #fill(message: Uint8Array, chunk: Uint8Array, at: number, deliver: (message: Uint8Array) => void): number {
    const end = Math.min(chunk.length, at + message.length - this.#messageFilled);
    message.set(chunk.subarray(at, end), this.#messageFilled);
    this.#messageFilled += end - at;
    if (this.#messageFilled === message.length) {
      this.#message = undefined;
      deliver(message);
    }
    return end;
  }

  #readPrefix(bytes: Uint8Array, at: number): number {
    const byte = (index: number): number => bytes[at + index] ?? 0;
    const flag = byte(0);
    if (flag === 1) {
      throw new AgentError(
        "UNIMPLEMENTED",
        "UNSUPPORTED_COMPRESSION",
        "the message is compressed; send messages uncompressed",
      );
    }
    if (flag !== 0) throw malformedMessage(`the message's flag byte is ${flag}; it must be 0`);
    const length = byte(1) * 0x1000000 + byte(2) * 0x10000 + byte(3) * 0x100 + byte(4);
    if (length > this.#limitBytes) throw messageTooLarge(length, this.#limitBytes);
    return length;
  }
}

/** Smaller messages are not worth keeping a buffer for. */
const SMALLEST_BYTES = 16 * 1024;
/** One message is filled while another is being used. */
const KEPT_BUFFERS = 2;

/**
 * Buffers for the messages of one request that did not come in one piece. A stream of large messages needs two of them
 * instead of one each, which V8 would have to find and free.
 */
export class MessageBuffers {
  /** Made with the first buffer: most requests are one small message, which needs none. */
  #lent: WeakSet<ArrayBufferLike> | undefined;
  readonly #free: ArrayBufferLike[] = [];

  /** A buffer of exactly that length, with any content. */
  take(length: number): Uint8Array {
    const at = this.#free.findIndex((buffer) => buffer.byteLength >= length);
    const [reused] = at < 0 ? [] : this.#free.splice(at, 1);
    // What is much too large would keep memory that nothing uses.
    const fits = reused !== undefined && reused.byteLength <= 2 * length;
    const bytes = fits ? new Uint8Array(reused, 0, length) : Buffer.allocUnsafeSlow(length);
    if (length >= SMALLEST_BYTES) (this.#lent ??= new WeakSet()).add(bytes.buffer);
    return bytes;
  }

  /** Takes a message back, or any view of it, that nobody looks at any more. Others' bytes are left alone. */
  giveBack(bytes: Uint8Array): void {
    if (this.#lent?.delete(bytes.buffer) === true && this.#free.length < KEPT_BUFFERS) this.#free.push(bytes.buffer);
  }
}
