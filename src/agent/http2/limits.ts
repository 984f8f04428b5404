import { Budget } from "../domain/index.ts";
import type { Output } from "./output.ts";
import { calmError } from "./protocol.ts";

/** Limits of an HTTP/2 connection. Exceeding one ends the stream or the connection with the code named with it. */
export interface Http2Limits {
  /** Requests at once: REFUSED_STREAM. */
  readonly streams: number;
  /**
   * Names and values of a request's fields, and 32 bytes for each (RFC 9113, 6.5.2): ENHANCE_YOUR_CALM for the stream.
   * A block of more bytes than that, as it is sent: ENHANCE_YOUR_CALM for the connection.
   */
  readonly headerListBytes: number;
  /** Decoded blocks that are remembered. */
  readonly rememberedBlocks: number;
  /** CONTINUATION frames of a header block: ENHANCE_YOUR_CALM for the connection. */
  readonly continuationFrames: number;
  /** SETTINGS and PINGs whose answers the peer has not taken: ENHANCE_YOUR_CALM for the connection. */
  readonly unwrittenAnswers: number;
  /** Cancelled or failed requests, at once and a second: ENHANCE_YOUR_CALM for the connection. */
  readonly resets: number;
  readonly resetsPerSecond: number;
  /** Requests before the first admitted one: ENHANCE_YOUR_CALM for the connection. */
  readonly unprovenRequests: number;
  readonly unprovenRequestsPerSecond: number;
  /** Useless frames (empty DATA, PRIORITY, unknown types; before an admitted request, all): ENHANCE_YOUR_CALM. */
  readonly idleFrames: number;
  readonly idleFramesPerSecond: number;
  /** Flow-control window of a request (what its client may send unread) while none on its connection is large. */
  readonly streamWindowBytes: number;
  /** The window while few requests of the connection are large. */
  readonly largestStreamWindowBytes: number;
  /** The window while many are. */
  readonly smallestStreamWindowBytes: number;
  /** Bound of all large requests' windows together, unless each has the smallest. */
  readonly sharedWindowBytes: number;
  /** Flow-control window of a connection. */
  readonly connectionWindowBytes: number;
}

/** The default limits. */
export const DEFAULT_HTTP2_LIMITS: Http2Limits = {
  streams: 128,
  headerListBytes: 16 * 1024,
  rememberedBlocks: 64,
  continuationFrames: 4,
  unwrittenAnswers: 100,
  resets: 500,
  resetsPerSecond: 50,
  unprovenRequests: 128,
  unprovenRequestsPerSecond: 10,
  idleFrames: 1_000,
  idleFramesPerSecond: 100,
  streamWindowBytes: 256 * 1024,
  largestStreamWindowBytes: 1024 * 1024,
  smallestStreamWindowBytes: 32 * 1024,
  sharedWindowBytes: 2 * 1024 * 1024,
  connectionWindowBytes: 4 * 1024 * 1024,
};

/**
 * Small frames (WINDOW_UPDATE, PING) that a request or a DATA frame of its answer earns: clients send four, some one a
 * KiB.
 */
const FRAMES_FOR_DATA = 64;
/** DATA frames that may be in flight when their request is reset, per useless frame allowed at once. */
const RESET_FACTOR = 4;
/** Most small frames that a peer may save up, as a multiple of the useless frames allowed at once. */
const CREDIT_FACTOR = 8;

/**
 * Bounds work that a peer causes without using it. Each method throws ConnectionError over a limit. Until a request of
 * the peer is admitted, every frame counts, and nothing earns the peer more.
 */
export class FloodGuard {
  readonly #limits: Http2Limits;
  readonly #nowMs: () => number;
  readonly #resets: Budget;
  readonly #idleFrames: Budget;
  readonly #unproven: Budget;
  /** Small frames that the peer has earned by requests and by DATA sent to it. */
  #credit = 0;
  #proven = false;
  /** SETTINGS and PINGs whose answers are still in the output, and those whose answers are not written yet. */
  #queued = 0;
  #unwritten = 0;

  constructor(limits: Http2Limits, nowMs: () => number) {
    this.#limits = limits;
    this.#nowMs = nowMs;
    this.#resets = new Budget(limits.resets, limits.resetsPerSecond, nowMs());
    this.#idleFrames = new Budget(limits.idleFrames, limits.idleFramesPerSecond, nowMs());
    this.#unproven = new Budget(limits.unprovenRequests, limits.unprovenRequestsPerSecond, nowMs());
  }

  /** Counts a request that either side ended early. */
  reset(): void {
    if (!this.#resets.spend(this.#nowMs())) throw calmError("too many requests that were broken off");
  }

  /** One of the peer's requests was admitted. */
  prove(): void {
    this.#proven = true;
  }

  frame(): void {
    if (!this.#proven) this.idleFrame("frames before a request that was let in");
  }

  headers(): void {
    if (this.#proven) return;
    if (!this.#unproven.spend(this.#nowMs())) throw calmError("too many requests that were not let in");
  }

  /** A request has begun, or DATA was sent: the peer has earned small frames. */
  earn(frames: number = FRAMES_FOR_DATA): void {
    if (this.#proven) this.#credit = Math.min(this.#credit + frames, CREDIT_FACTOR * this.#limits.idleFrames);
  }

  /** A request was reset while more of it is in flight. */
  resetSent(): void {
    this.earn(RESET_FACTOR * this.#limits.idleFrames);
  }

  /** Counts a small frame: as a useless one, unless the peer has earned it. */
  smallFrame(what: string): void {
    if (this.#credit > 0) this.#credit--;
    else this.idleFrame(what);
  }

  /** Counts a useless frame. */
  idleFrame(what: string): void {
    if (!this.#idleFrames.spend(this.#nowMs())) throw calmError(`too many ${what}`);
  }

  /** Counts a small frame that is to be answered. */
  answer(what: string): void {
    this.smallFrame(what);
    this.#queued++;
    this.#unwritten++;
    if (this.#unwritten > this.#limits.unwrittenAnswers) throw calmError("SETTINGS and PINGs without a pause");
  }

  /** The output with all answers so far was taken. Once it is written, they no longer count. */
  taken(output: Output): void {
    const answers = this.#queued;
    if (answers === 0) return;
    this.#queued = 0;
    output.whenWritten(() => {
      this.#unwritten -= answers;
    });
  }
}
