import type { Http2Limits } from "./limits.ts";
import type { Output } from "./output.ts";
import { DEFAULT_WINDOW_BYTES, flowControlError, FrameType } from "./protocol.ts";
import { writeSettings } from "./control-frames.ts";
import type { Http2Stream } from "./stream.ts";

/** A request is large if it has sent more than this, because the agent may hold more than this for it. */
const LARGE_REQUEST_BYTES = 32 * 1024;

/**
 * Manages the windows for the peer's data, of the connection and of each stream. Divides a limit among the large
 * requests of a connection: a single upload is a fifth faster with a large window, but many large windows would fill
 * the memory. HTTP/2 has one initial window size for all streams of a connection, and changing it affects open streams,
 * too (RFC 9113, 6.9.2). See decision 0016.
 */
export class ReceiveWindows {
  readonly #limits: Http2Limits;
  readonly #output: Output;
  readonly #streams: ReadonlyMap<number, Http2Stream>;
  #connectionBytes: number;
  #unannouncedBytes = 0;
  #largeRequests = 0;
  /** Initial stream window as last announced. */
  #announcedBytes: number;
  /**
   * Stream window that the peer may assume. A larger one applies at once, a smaller one after the peer's
   * acknowledgement.
   */
  streamBytes: number;
  /** Callbacks for acknowledgements of SETTINGS, oldest first. */
  readonly #settings: (() => void)[] = [() => {}];
  #announcing = false;

  /** Sends the first SETTINGS and opens the connection's window. */
  constructor(limits: Http2Limits, output: Output, streams: ReadonlyMap<number, Http2Stream>) {
    this.#limits = limits;
    this.#output = output;
    this.#streams = streams;
    this.#connectionBytes = limits.connectionWindowBytes;
    this.#announcedBytes = limits.streamWindowBytes;
    this.streamBytes = limits.streamWindowBytes;
    writeSettings(output, limits);
    output.number(FrameType.WINDOW_UPDATE, 0, limits.connectionWindowBytes - DEFAULT_WINDOW_BYTES);
  }

  /** Counts a DATA frame against the connection's window. Throws ConnectionError if it is exceeded. */
  spend(sizeBytes: number): void {
    this.#connectionBytes -= sizeBytes;
    if (this.#connectionBytes < 0) throw flowControlError("more DATA than the connection's window allows");
  }

  /** Returns bytes to the connection's window. */
  free(sizeBytes: number): void {
    this.#unannouncedBytes += sizeBytes;
    if (this.#unannouncedBytes * 2 < this.#limits.connectionWindowBytes) return;
    this.#output.number(FrameType.WINDOW_UPDATE, 0, this.#unannouncedBytes);
    this.#connectionBytes += this.#unannouncedBytes;
    this.#unannouncedBytes = 0;
  }

  consumed(stream: Http2Stream, sizeBytes: number): void {
    this.free(sizeBytes);
    stream.unannouncedBytes += sizeBytes;
    this.#open(stream);
  }

  received(stream: Http2Stream, sizeBytes: number): void {
    const before = stream.receivedBytes;
    stream.receivedBytes = before + sizeBytes;
    if (before > LARGE_REQUEST_BYTES || stream.receivedBytes <= LARGE_REQUEST_BYTES) return;
    this.#largeRequests++;
    this.#adjust();
  }

  /** Records that a stream has ended with `heldBytes` unread. */
  ended(stream: Http2Stream, heldBytes: number): void {
    this.free(heldBytes);
    if (stream.receivedBytes <= LARGE_REQUEST_BYTES) return;
    this.#largeRequests--;
    this.#adjust();
  }

  /** The peer acknowledged the oldest SETTINGS. Returns false if there were none. */
  acknowledged(): boolean {
    const apply = this.#settings.shift();
    apply?.();
    return apply !== undefined;
  }

  /** Sends a WINDOW_UPDATE for a stream once half of its window was read. */
  #open(stream: Http2Stream): void {
    if (stream.closed || stream.remoteEnded || stream.unannouncedBytes * 2 < this.#announcedBytes) return;
    this.#output.number(FrameType.WINDOW_UPDATE, stream.id, stream.unannouncedBytes);
    stream.receiveWindowBytes += stream.unannouncedBytes;
    stream.unannouncedBytes = 0;
  }

  /** Announces one change at a time, so a client that acknowledges none gets no more. */
  #adjust(): void {
    if (this.#announcing || this.#largeRequests === 0) return;
    const windowBytes = this.#nextWindow();
    if (windowBytes === this.#announcedBytes) return;
    this.#announcing = true;
    this.#announcedBytes = windowBytes;
    const delta = windowBytes - this.streamBytes;
    if (delta > 0) this.#widen(delta);
    this.#settings.push(() => {
      if (delta < 0) this.#widen(delta);
      this.#announcing = false;
      this.#adjust();
    });
    writeSettings(this.#output, { streamWindowBytes: windowBytes });
  }

  #widen(delta: number): void {
    this.streamBytes += delta;
    for (const stream of this.#streams.values()) {
      stream.receiveWindowBytes += delta;
      // In a smaller window, the bytes that were read may already be half of it.
      this.#open(stream);
    }
  }

  /** The window grows only if twice as many requests would get the same one, so that it does not oscillate. */
  #nextWindow(): number {
    const most = this.#share(this.#largeRequests);
    const least = this.#share(2 * this.#largeRequests);
    return Math.min(Math.max(this.#announcedBytes, least), most);
  }

  #share(requests: number): number {
    const { smallestStreamWindowBytes, largestStreamWindowBytes, sharedWindowBytes } = this.#limits;
    let windowBytes = largestStreamWindowBytes;
    while (windowBytes > smallestStreamWindowBytes && windowBytes * requests > sharedWindowBytes) windowBytes /= 2;
    return windowBytes;
  }
}
