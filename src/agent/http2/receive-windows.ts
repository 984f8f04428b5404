import type { Http2Limits } from "./limits.ts";
import type { Output } from "./output.ts";
import { DEFAULT_WINDOW_BYTES, flowControlError, FrameType } from "./protocol.ts";
import { writeSettings } from "./control-frames.ts";
import type { Http2Stream } from "./stream.ts";

/** A request that has sent more than this counts as large. A smaller request cannot fill more memory than this. */
const LARGE_REQUEST_BYTES = 32 * 1024;

/**
 * Manages the flow-control windows for the data that the peer sends (decision 0016). All streams of a connection have
 * windows of the same size, because HTTP/2 has one setting for all streams (RFC 9113, 6.9.2).
 *
 * The window size depends on how many requests are large (LARGE_REQUEST_BYTES). If only one is, a large window makes
 * this upload a fifth faster. But many large windows could fill the memory, so the windows of all large requests
 * together have a limit (`sharedWindowBytes`).
 */
export class ReceiveWindows {
  readonly #limits: Http2Limits;
  readonly #output: Output;
  readonly #streams: ReadonlyMap<number, Http2Stream>;
  #connectionBytes: number;
  #unannouncedBytes = 0;
  #largeRequests = 0;
  /** The value of SETTINGS_INITIAL_WINDOW_SIZE that the agent has announced last. */
  #announcedBytes: number;
  /**
   * Size of each stream's window, as the agent applies it now. If the agent announces a larger size, it applies the new
   * size at once. If it announces a smaller size, it applies the new size only when the peer has acknowledged it.
   */
  streamBytes: number;
  /** Callbacks for SETTINGS that the peer has not acknowledged yet, oldest first. */
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

  /**
   * Call it when received bytes were read or discarded. When the sum of these bytes is half of the connection's window,
   * sends a WINDOW_UPDATE, so that the peer may send as many bytes again.
   */
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

  /** Call it when a stream has ended. `heldBytes` is the number of its received bytes that were never read. */
  ended(stream: Http2Stream, heldBytes: number): void {
    this.free(heldBytes);
    if (stream.receivedBytes <= LARGE_REQUEST_BYTES) return;
    this.#largeRequests--;
    this.#adjust();
  }

  /** Applies the oldest SETTINGS frame that the peer had not acknowledged. Returns false if there is no such frame. */
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

  /** Announces the next window size, once the peer has acknowledged the previous one. */
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
      // #open() sends a WINDOW_UPDATE if at least half of the window was read. What was read may now be half of the
      // window, if the window has become smaller.
      this.#open(stream);
    }
  }

  /**
   * Returns the next window size:
   *
   * - A smaller size, if windows of the present size would exceed the shared limit for all large requests together.
   * - A larger size, if windows of that size would fit even for twice as many large requests. With less room the size
   *   does not grow, so that it does not oscillate.
   * - Otherwise the present size.
   */
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
