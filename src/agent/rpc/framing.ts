import { AgentError } from "../domain/index.ts";
import type { MessageBuffers } from "./message-buffers.ts";

/** Bytes before every message: a compression flag and the length (gRPC over HTTP/2, Length-Prefixed-Message). */
export const PREFIX_BYTES = 5;

/** The error for a message that exceeds the size limit, whether it is received or sent. */
export function messageTooLarge(sizeBytes: number, limitBytes: number): AgentError {
  return new AgentError(
    "RESOURCE_EXHAUSTED",
    "MESSAGE_TOO_LARGE",
    `a message of ${sizeBytes} bytes exceeds the limit of ${limitBytes} bytes; split it`,
    { sizeBytes: String(sizeBytes), limitBytes: String(limitBytes) },
  );
}

/** The error for a request with too few or too many messages (gRPC's statuscodes.md: UNIMPLEMENTED). */
export function wrongMessageCount(problem: string): AgentError {
  return new AgentError(
    "UNIMPLEMENTED",
    "MALFORMED_MESSAGE",
    `the request has ${problem}; the method requires exactly one message`,
  );
}

/** The error for bytes that the method does not accept. */
export function malformedMessage(problem: string, cause?: unknown): AgentError {
  return new AgentError("INVALID_ARGUMENT", "MALFORMED_MESSAGE", problem, {}, cause);
}

/** Splits a byte stream into messages. Copies the bytes, because the caller reuses the chunks. */
export class MessageReader {
  readonly #limitBytes: number;
  readonly #buffers: MessageBuffers;
  /** The first bytes of a message prefix (5 bytes) that arrives in several chunks. */
  #prefix: Uint8Array | undefined;
  #prefixFilled = 0;
  /** Length of the incomplete message, whose first bytes are in `#begin` until more bytes arrive. */
  #messageBytes = 0;
  #begin: Uint8Array | undefined;
  #beginMemory: Uint8Array | undefined;
  #message: Uint8Array | undefined;
  #messageFilled = 0;

  constructor(limitBytes: number, buffers: MessageBuffers) {
    this.#limitBytes = limitBytes;
    this.#buffers = buffers;
  }

  /** Number of bytes of the incomplete message that have arrived. */
  get heldBytes(): number {
    return this.#begin?.length ?? (this.#message === undefined ? 0 : this.#messageFilled);
  }

  drop(): void {
    this.#begin = undefined;
    this.#beginMemory = undefined;
    if (this.#message !== undefined) this.#buffers.release(this.#message);
    this.#message = undefined;
  }

  /**
   * Delivers the messages that these bytes complete. Throws AgentError for an invalid prefix; the reader must not be
   * used after that.
   */
  push(chunk: Uint8Array, deliver: (message: Uint8Array) => void): void {
    let at = 0;
    while (at < chunk.length) {
      const message = this.#incompleteMessage();
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
        const whole = this.#buffers.take(length);
        whole.set(chunk.subarray(at, at + length));
        deliver(whole);
        at += length;
      } else {
        this.#messageBytes = length;
        this.#keepBegin(chunk.subarray(at));
        return;
      }
    }
  }

  /** Call it at the end of the stream. Throws AgentError if a message is incomplete. */
  end(): void {
    if (this.#prefixFilled > 0 || this.#begin !== undefined || this.#message !== undefined) {
      throw malformedMessage("the request stream ends within a message");
    }
  }

  /**
   * Returns the buffer of the incomplete message. Allocates it only now, because the previous buffer may be free by
   * now.
   */
  #incompleteMessage(): Uint8Array | undefined {
    const begin = this.#begin;
    if (begin === undefined) return this.#message;
    this.#begin = undefined;
    this.#message = this.#buffers.take(this.#messageBytes);
    this.#message.set(begin);
    this.#messageFilled = begin.length;
    return this.#message;
  }

  #keepBegin(begin: Uint8Array): void {
    if (this.#beginMemory === undefined || this.#beginMemory.length < begin.length) {
      this.#beginMemory = Buffer.allocUnsafeSlow(begin.length);
    }
    this.#begin = this.#beginMemory.subarray(0, begin.length);
    this.#begin.set(begin);
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
      // The request has no grpc-encoding other than "identity", because any other was already rejected. So a compressed
      // message is an error (gRPC's compression.md: INTERNAL).
      throw new AgentError(
        "INTERNAL",
        "UNSUPPORTED_COMPRESSION",
        "the message is compressed; send messages uncompressed",
      );
    }
    if (flag !== 0) throw malformedMessage(`the message's flag byte is ${flag}, but must be 0`);
    const length = byte(1) * 0x1000000 + byte(2) * 0x10000 + byte(3) * 0x100 + byte(4);
    if (length > this.#limitBytes) throw messageTooLarge(length, this.#limitBytes);
    return length;
  }
}
