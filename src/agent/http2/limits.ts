import { Budget } from "../domain/index.ts";
import type { Output } from "./output.ts";
import { enhanceYourCalm } from "./protocol.ts";

/** Default limits of an HTTP/2 connection. Each comment names the error code that is sent if the limit is exceeded. */
export const DEFAULT_HTTP2_LIMITS = {
  /** Limit for concurrent requests. Further requests are refused with REFUSED_STREAM. */
  streams: 128,
  /**
   * Limit for the size of a request's header: of its names and values, plus 32 bytes per field (RFC 9113, 6.5.2). For a
   * larger header, the stream is reset with ENHANCE_YOUR_CALM. If even the encoded header exceeds the limit, the
   * connection is closed with ENHANCE_YOUR_CALM.
   */
  headerListBytes: 16_384,
  /** Number of decoded header blocks in the cache. */
  rememberedBlocks: 64,
  /** Limit for the CONTINUATION frames of a header block. Exceeding it closes the connection with ENHANCE_YOUR_CALM. */
  continuationFrames: 4,
  /** Limit for unread answers to SETTINGS and PINGs. Above it, the connection is closed with ENHANCE_YOUR_CALM. */
  unwrittenAnswers: 100,
  /**
   * Limits for useless frames: in a burst, and per second. Exceeding them closes the connection with ENHANCE_YOUR_CALM.
   *
   * - Before authentication, all frames are useless.
   * - After authentication, these frames are useless: empty DATA frames, PRIORITY frames, frames of unknown types, and
   *   small frames (such as PING) beyond the peer's credit.
   */
  idleFrames: 1_000,
  idleFramesPerSecond: 100,
  /** Size of a stream's window until the first large request of the connection. */
  streamWindowBytes: 262_144,
  /** Size of a stream's window while the connection has few large requests. */
  largestStreamWindowBytes: 1_048_576,
  /** Size of a stream's window while the connection has many large requests. */
  smallestStreamWindowBytes: 32_768,
  /**
   * Limit for the sum of the windows of all large requests. The more large requests there are, the smaller their
   * windows become, but not smaller than `smallestStreamWindowBytes`. So very many large requests can exceed this
   * limit.
   */
  sharedWindowBytes: 2_097_152,
  /** Flow-control window of the connection: how many unread bytes of all requests together the peer may send. */
  connectionWindowBytes: 4_194_304,
};

export type Http2Limits = Readonly<typeof DEFAULT_HTTP2_LIMITS>;

/** A request that either side ends early counts as this many useless frames. */
const RESET_COST = 2;
/** A request before authentication counts as this many useless frames. */
const UNAUTHENTICATED_REQUEST_COST = 8;
/**
 * Small frames (WINDOW_UPDATE, PING) that the peer may send per request, and per DATA frame sent to it. Most clients
 * send four; some send one per KiB of data.
 */
const FRAMES_FOR_DATA = 64;
/**
 * Credit for small frames after a reset, as a multiple of `idleFrames`. The peer may have sent many small frames before
 * it received the reset.
 */
const RESET_FACTOR = 4;
/** Largest credit of small frames that a peer can save up, as a multiple of `idleFrames`. */
const CREDIT_FACTOR = 8;

/**
 * Limits the useless work that a peer can cause. Each method throws ConnectionError if its limit is exceeded. Before
 * authentication, every frame counts as useless.
 */
export class FloodGuard {
  readonly #limits: Http2Limits;
  readonly #nowMs: () => number;
  readonly #budget: Budget;
  /** Number of small frames, such as WINDOW_UPDATE, that the peer may send before they count as useless. */
  #credit = 0;
  #isAuthenticated = false;
  /** Number of answers to SETTINGS and PINGs that were not passed to the socket yet. */
  #queued = 0;
  /** Number of answers to SETTINGS and PINGs that the socket has not written yet. Includes `#queued`. */
  #unwritten = 0;

  constructor(limits: Http2Limits, nowMs: () => number) {
    this.#limits = limits;
    this.#nowMs = nowMs;
    this.#budget = new Budget(limits.idleFrames, limits.idleFramesPerSecond, nowMs());
  }

  /** Counts a request that either side ended early. */
  reset(): void {
    this.#spend("requests that were cancelled or refused", RESET_COST);
  }

  /** Call it when the peer was authenticated. From then on, the peer earns credit for small frames. */
  markAuthenticated(): void {
    this.#isAuthenticated = true;
  }

  frame(): void {
    if (!this.#isAuthenticated) this.idleFrame("frames before authentication");
  }

  headers(): void {
    if (!this.#isAuthenticated) this.#spend("requests before authentication", UNAUTHENTICATED_REQUEST_COST);
  }

  /**
   * Gives the peer credit for small frames. Call it when a request begins or when the agent sends DATA, because even
   * good clients then send small frames, such as WINDOW_UPDATE.
   */
  earn(frames: number = FRAMES_FOR_DATA): void {
    if (this.#isAuthenticated) this.#credit = Math.min(this.#credit + frames, CREDIT_FACTOR * this.#limits.idleFrames);
  }

  /**
   * Call it when the agent has reset a stream. The peer's credit grows, because frames for this stream may be in
   * flight.
   */
  resetSent(): void {
    this.earn(RESET_FACTOR * this.#limits.idleFrames);
  }

  /** Takes one frame from the peer's credit. If no credit is left, counts the frame as useless. */
  smallFrame(what: string): void {
    if (this.#credit > 0) this.#credit--;
    else this.idleFrame(what);
  }

  /** Counts a useless frame. `what` names such frames in the error. */
  idleFrame(what: string): void {
    this.#spend(what, 1);
  }

  #spend(what: string, cost: number): void {
    if (!this.#budget.spend(this.#nowMs(), cost)) throw enhanceYourCalm(`too many ${what}`);
  }

  /** Counts a small frame that the agent must answer, such as a PING. */
  answer(what: string): void {
    this.smallFrame(what);
    this.#queued++;
    this.#unwritten++;
    if (this.#unwritten > this.#limits.unwrittenAnswers)
      throw enhanceYourCalm("too many unanswered SETTINGS and PINGs");
  }

  /**
   * Call it when the output is passed to the socket. The answers in the output still count against `unwrittenAnswers`
   * until they are written.
   */
  taken(output: Output): void {
    const answers = this.#queued;
    if (answers === 0) return;
    this.#queued = 0;
    output.whenWritten(() => {
      this.#unwritten -= answers;
    });
  }
}
