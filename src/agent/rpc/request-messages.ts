import { type AgentError, type Incoming, type LentBytes, Loan, type Share } from "../domain/index.ts";
import type { Http2Stream } from "../http2/index.ts";
import { MessageReader, wrongMessageCount } from "./framing.ts";
import { MessageBuffers, type SpareMemory } from "./message-buffers.ts";

/** Bytes at which reading pauses while nobody asks for a message. */
const PAUSE_AT_BYTES = 64 * 1024;
/** Counted for each held message on top of its bytes, so that a flood of empty ones is bounded too. */
const MESSAGE_OVERHEAD_BYTES = 64;
/** Messages over this size count until their memory is given back: a handler may hold one for any time. */
const LARGE_MESSAGE_BYTES = 256 * 1024;

/** The messages of a request. While nobody asks for one it pauses the stream, and the client has to wait. */
export class RequestMessages {
  readonly #stream: Http2Stream;
  readonly #buffers: MessageBuffers;
  readonly #reader: MessageReader;
  readonly #queue: Uint8Array[] = [];
  readonly #newShare: () => Share;
  /** Of what all requests together may hold. Created when this one first holds something. */
  #unread: Share | undefined;
  #queuedBytes = 0;
  /** Bytes of large messages that a handler has taken and not released. */
  #takenBytes = 0;
  #paused = true;
  #ended = false;
  #discarded = false;
  /** The request has one message, which is taken only at its end. */
  #isSingle = false;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  /**
   * @param spare what all requests together may keep unused
   * @param newShare makes the request's share of what all of them may hold unread
   */
  constructor(stream: Http2Stream, messageLimitBytes: number, spare: SpareMemory, newShare: () => Share) {
    this.#buffers = new MessageBuffers(spare);
    this.#reader = new MessageReader(messageLimitBytes, this.#buffers);
    this.#stream = stream;
    this.#newShare = newShare;
    stream.pause();
  }

  /** The next message; undefined: there is none. Throws AgentError where the request failed. */
  next(): Promise<LentBytes | undefined> {
    return new Promise((resolve, reject) => {
      this.each(
        (message) => {
          resolve(message);
          // The next reader takes over.
          return new Promise<never>(() => {});
        },
        (failure) => {
          if (failure === undefined) resolve(undefined);
          else reject(failure);
        },
      );
    });
  }

  #shift(): LentBytes | undefined {
    const message = this.#queue.shift();
    if (message === undefined) return undefined;
    this.#queuedBytes -= message.length + MESSAGE_OVERHEAD_BYTES;
    if (message.length > LARGE_MESSAGE_BYTES || this.#isSingle) this.#takenBytes += message.length;
    this.#account(this.#heldBytes);
    return new Loan(message, this.#release);
  }

  /** For a request of one message: calls back in the tick in which it ends or is refused. */
  only(got: (message: LentBytes) => void, failed: (error: Error) => void): void {
    let only: LentBytes | undefined;
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
          // From here on the caller owns the bytes, and no other message will need them.
          this.#buffers.close();
          got(only);
        }
      },
    );
  }

  /** Calls `take` with each message in the tick of the event loop in which it arrives. */
  readonly each: Incoming<LentBytes> = (take, over) => {
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
      // Register before reading resumes: held bytes may arrive within the call.
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

  /** Ends the iteration with an error at once, dropping held messages. (A refused message fails only when it is next.) */
  fail(error: AgentError): void {
    if (this.#discarded) return;
    this.#failure ??= error;
    this.#drop();
  }

  /** Ends the iteration. Reads and drops what still arrives. */
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
    // Taken messages end with the call, which is over.
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
      // While somebody waits for the next message, a complete small one is taken at once and does not count.
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

  /** Updates the share. Throws AgentError when all requests together hold too much. */
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

  /** The client has half-closed. */
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

  /** Any other error than AgentError is a bug: it ends this call, and not what the connection's read belongs to. */
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
