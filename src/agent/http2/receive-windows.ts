import type { Http2Limits } from "./limits.ts";
import type { Output } from "./output.ts";
import { DEFAULT_WINDOW_BYTES, flowControlError, FrameType } from "./protocol.ts";
import { writeSettings } from "./control-frames.ts";
import type { Http2Stream } from "./stream.ts";

/**
 * A request counts as large once it has sent more than this. A smaller request cannot fill more memory than this, so
 * its window does not count against the limit of the large requests.
 */
const LARGE_REQUEST_BYTES = 32 * 1024;

/**
 * Manages the flow-control windows for the data that the peer sends: one window of the connection, and one of each
 * stream. A large window makes a single upload a fifth faster, but many large windows could fill the memory. So the
 * windows of all large requests of a connection together have a limit (`sharedWindowBytes`). All streams of a
 * connection have windows of the same size, because HTTP/2 has one setting for all streams, and a change of this
 * setting also affects open streams (RFC 9113, 6.9.2). See decision 0016.
 */
export class ReceiveWindows {
  readonly #limits: Http2Limits;
  readonly #output: Output;
  readonly #streams: ReadonlyMap<number, Http2Stream>;
  #connectionBytes: number;
  #unannouncedBytes = 0;
  #largeRequests = 0;
  /** Initial stream window in the last SETTINGS frame that announced one. */
  #announcedBytes: number;
  /**
   * Stream window that is in effect. A larger window is in effect as soon as it is announced, a smaller one only after
   * the peer has acknowledged it.
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
   * Call it when received bytes were read or discarded, so that the peer may send the same number of bytes again. A
   * WINDOW_UPDATE announces this to the peer once the freed bytes amount to half of the connection's window.
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

  /**
   * Call it when the peer acknowledges SETTINGS. This acknowledges the oldest SETTINGS frame that is not acknowledged
   * yet. Returns false if there is no such frame.
   */
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

  /** Announces the next window size. First waits until the peer has acknowledged the previous one. */
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
      // A stream gets a WINDOW_UPDATE once half of its window was read. If the window has just become smaller, the
      // bytes read so far may already be half of it.
      this.#open(stream);
    }
  }

  /**
   * Returns the next window size. The window shrinks if the current large requests would exceed the shared limit. It
   * grows only to a size at which twice as many large requests would fit, so that the size does not oscillate.
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
