import { type AgentError, type Incoming, type BorrowedBytes, BorrowedBuffer, type Share } from "../domain/index.ts";
import type { Http2Stream } from "../http2/index.ts";
import { MessageReader, wrongMessageCount } from "./framing.ts";
import { MessageBuffers, type SpareMemory } from "./message-buffers.ts";

/** While the handler takes no messages, reading from the client pauses when this many bytes are buffered. */
const PAUSE_AT_BYTES = 64 * 1024;
/** Added to the size of each buffered message, so that a flood of empty messages is limited too. */
const MESSAGE_OVERHEAD_BYTES = 64;
/**
 * A message above this size is large. The unread bytes of all requests together are limited:
 *
 * - A small message counts as unread until the handler takes it.
 * - A large message counts as unread until the handler releases it, because the handler may keep it for a long time.
 */
const LARGE_MESSAGE_BYTES = 256 * 1024;

/** The messages of a request. While the handler does not read, the stream is paused, so that the client must wait. */
export class RequestMessages {
  readonly #stream: Http2Stream;
  readonly #buffers: MessageBuffers;
  readonly #reader: MessageReader;
  readonly #queue: Uint8Array[] = [];
  readonly #newShare: () => Share;
  /** This request's share of the limit for unread bytes. Created when the request first buffers bytes. */
  #unread: Share | undefined;
  #queuedBytes = 0;
  /**
   * Bytes of the large messages that the handler has taken but not released yet. If `#isSingle` is set, a message of
   * any size counts.
   */
  #takenBytes = 0;
  #paused = true;
  #ended = false;
  #discarded = false;
  /** Whether the request must have exactly one message, which is delivered at the end of the request. */
  #isSingle = false;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  /**
   * @param spare limits the free buffers that all requests together keep for reuse
   * @param newShare creates this request's share of the limit for the unread bytes of all requests
   */
  constructor(stream: Http2Stream, messageLimitBytes: number, spare: SpareMemory, newShare: () => Share) {
    this.#buffers = new MessageBuffers(spare);
    this.#reader = new MessageReader(messageLimitBytes, this.#buffers);
    this.#stream = stream;
    this.#newShare = newShare;
    stream.pause();
  }

  /**
   * Resolves with the next message, or with undefined at the end of the request. Throws AgentError if the request
   * failed.
   */
  next(): Promise<BorrowedBytes | undefined> {
    return new Promise((resolve, reject) => {
      this.each(
        (message) => {
          resolve(message);
          // This each() waits for the promise before its next message, so it delivers only one: the promise never
          // resolves. The next call of next() or each() delivers the following message.
          return new Promise<never>(() => {});
        },
        (failure) => {
          if (failure === undefined) resolve(undefined);
          else reject(failure);
        },
      );
    });
  }

  #shift(): BorrowedBytes | undefined {
    const message = this.#queue.shift();
    if (message === undefined) return undefined;
    this.#queuedBytes -= message.length + MESSAGE_OVERHEAD_BYTES;
    if (message.length > LARGE_MESSAGE_BYTES || this.#isSingle) this.#takenBytes += message.length;
    this.#account(this.#heldBytes);
    return new BorrowedBuffer(message, this.#release);
  }

  /**
   * Reads a request that must have exactly one message. Calls `got` or `failed` once, in the same tick of the event
   * loop in which the request ends or is rejected.
   */
  only(got: (message: BorrowedBytes) => void, failed: (error: Error) => void): void {
    let only: BorrowedBytes | undefined;
    this.#isSingle = true;
    this.each(
      (message) => {
        if (only !== undefined) throw wrongMessageCount("more than one message");
        only = message;
        return undefined;
      },
      (failure) => {
        this.#account(0);
        if (failure !== undefined) {
          only?.release();
          failed(failure);
        } else if (only === undefined) failed(wrongMessageCount("no message"));
        else {
          // The request has ended, so it needs no more buffers. Its only message now belongs to the caller.
          this.#buffers.close();
          got(only);
        }
      },
    );
  }

  /**
   * Calls `take` with each message, in the tick of the event loop in which the message arrives. Calls `over` at the
   * end.
   */
  readonly each: Incoming<BorrowedBytes> = (take, over) => {
    const takeAll = (): void => {
      try {
        for (let message = this.#shift(); message !== undefined; message = this.#shift()) {
          const busy = take(message);
          if (busy === undefined) continue;
          void busy.then(takeAll);
          return;
        }
      } catch (error) {
        this.#refuse(error);
      }
      if (this.#failure !== undefined || this.#ended) {
        over(this.#failure);
        return;
      }
      // Set `#wake` before calling `#read()`: if the stream has buffered input, `#read()` may call `#wake` at once.
      this.#wake = takeAll;
      this.#read();
    };
    takeAll();
  };

  readonly #release = (message: Uint8Array): void => {
    const sizeBytes = this.#buffers.release(message);
    if (sizeBytes <= LARGE_MESSAGE_BYTES || this.#takenBytes === 0) return;
    this.#takenBytes -= sizeBytes;
    this.#account(this.#heldBytes);
  };

  /**
   * Ends the iteration with this error at once, and drops the messages that the handler has not taken yet. Do not use
   * it for an invalid message: that error must be thrown only after the handler has taken the messages before it.
   */
  fail(error: AgentError): void {
    if (this.#discarded) return;
    this.#failure ??= error;
    this.#drop();
  }

  /** Ends the iteration. Further input is read and dropped. */
  discard(): void {
    this.#discarded = true;
    this.#ended = true;
    this.#drop();
    this.#read();
  }

  #drop(): void {
    this.#buffers.close();
    for (const message of this.#queue) this.#buffers.release(message);
    this.#queue.length = 0;
    this.#queuedBytes = 0;
    // The call has ended. Its handler may still hold messages, but they no longer count against the limit.
    this.#takenBytes = 0;
    this.#reader.drop();
    this.#unread?.set(0);
    this.#wakeUp();
  }

  #read(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#stream.resume();
  }

  data(chunk: Uint8Array): void {
    if (this.#failure !== undefined || this.#ended) return;
    try {
      this.#reader.push(chunk, this.#deliver);
      // If the handler is waiting, a small message does not count against the limit, because the handler takes it at
      // once.
      const isTaken = this.#wake !== undefined && !this.#isSingle && this.#queuedBytes <= LARGE_MESSAGE_BYTES;
      this.#account(this.#heldBytes - (isTaken ? this.#queuedBytes : 0));
    } catch (error) {
      this.#refuse(error);
    }
    if (this.#queue.length > 0 || this.#failure !== undefined) this.#wakeUp();
    const asked = this.#wake !== undefined;
    if (this.#failure !== undefined || (!asked && this.#heldBytes - this.#takenBytes >= PAUSE_AT_BYTES)) {
      this.#paused = true;
      this.#stream.pause();
    }
  }

  /** Records how many bytes this request has in memory. Throws AgentError if all requests together exceed the limit. */
  #account(bytes: number): void {
    if (bytes > 0) this.#unread ??= this.#newShare();
    this.#unread?.set(bytes);
  }

  get #heldBytes(): number {
    return this.#queuedBytes + this.#takenBytes + this.#reader.heldBytes;
  }

  readonly #deliver = (message: Uint8Array): void => {
    this.#queue.push(message);
    this.#queuedBytes += message.length + MESSAGE_OVERHEAD_BYTES;
  };

  /**
   * Ends the messages of the request, because the client has half-closed. Fails the call if the last message is
   * incomplete.
   */
  end(): void {
    if (this.#failure !== undefined || this.#ended) return;
    try {
      this.#reader.end();
      this.#ended = true;
    } catch (error) {
      this.#refuse(error);
    }
    this.#wakeUp();
  }

  /** Fails this call, but not the whole connection. Reports an error other than AgentError as an internal error. */
  #refuse(error: unknown): void {
    this.#failure = error instanceof Error ? error : new Error("thrown without a reason", { cause: error });
    this.#buffers.close();
    this.#reader.drop();
    this.#unread?.set(0);
  }

  #wakeUp(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}
