import { Budget } from "../domain/index.ts";
import type { Output } from "./output.ts";
import { calmError } from "./protocol.ts";

/** The default limits of an HTTP/2 connection. Exceeding one ends the stream or the connection with the code named. */
export const DEFAULT_HTTP2_LIMITS = {
  /** Requests at once: REFUSED_STREAM. */
  streams: 128,
  /**
   * Names and values of a request's fields, and 32 bytes for each (RFC 9113, 6.5.2): ENHANCE_YOUR_CALM for the stream.
   * A block of more bytes than that, as it is sent: ENHANCE_YOUR_CALM for the connection.
   */
  headerListBytes: 16_384,
  /** Decoded blocks that are remembered. */
  rememberedBlocks: 64,
  /** CONTINUATION frames of a header block: ENHANCE_YOUR_CALM for the connection. */
  continuationFrames: 4,
  /** SETTINGS and PINGs whose answers the peer has not taken: ENHANCE_YOUR_CALM for the connection. */
  unwrittenAnswers: 100,
  /**
   * Useless frames (empty DATA, PRIORITY, unknown types; before an admitted request, all), at once and a second:
   * ENHANCE_YOUR_CALM for the connection. Cancelled and refused requests count as several.
   */
  idleFrames: 1_000,
  idleFramesPerSecond: 100,
  /** Flow-control window of a request (what its client may send unread) while none on its connection is large. */
  streamWindowBytes: 262_144,
  /** The window while few requests of the connection are large. */
  largestStreamWindowBytes: 1_048_576,
  /** The window while many are. */
  smallestStreamWindowBytes: 32_768,
  /** Bound of all large requests' windows together, unless each has the smallest. */
  sharedWindowBytes: 2_097_152,
  /** Flow-control window of a connection. */
  connectionWindowBytes: 4_194_304,
};

/** Limits of an HTTP/2 connection. */
export type Http2Limits = Readonly<typeof DEFAULT_HTTP2_LIMITS>;

/** What a request that either side ends early costs, in useless frames; and one before the first that is admitted. */
const RESET_COST = 2;
const UNPROVEN_REQUEST_COST = 8;
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
  readonly #budget: Budget;
  /** Small frames that the peer has earned by requests and by DATA sent to it. */
  #credit = 0;
  #proven = false;
  /** SETTINGS and PINGs whose answers are still in the output, and those whose answers are not written yet. */
  #queued = 0;
  #unwritten = 0;

  constructor(limits: Http2Limits, nowMs: () => number) {
    this.#limits = limits;
    this.#nowMs = nowMs;
    this.#budget = new Budget(limits.idleFrames, limits.idleFramesPerSecond, nowMs());
  }

  /** Counts a request that either side ended early. */
  reset(): void {
    this.#spend("requests that were broken off", RESET_COST);
  }

  /** One of the peer's requests was admitted. */
  prove(): void {
    this.#proven = true;
  }

  frame(): void {
    if (!this.#proven) this.idleFrame("frames before a request that was let in");
  }

  headers(): void {
    if (!this.#proven) this.#spend("requests that were not let in", UNPROVEN_REQUEST_COST);
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
    this.#spend(what, 1);
  }

  #spend(what: string, cost: number): void {
    if (!this.#budget.spend(this.#nowMs(), cost)) throw calmError(`too many ${what}`);
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
