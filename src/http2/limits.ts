/** Bounds of an HTTP/2 connection. What is over one of them ends the stream or the connection, with the code beside it. */
export interface Http2Limits {
  /** Requests at once: REFUSED_STREAM. */
  readonly streams: number;
  /** Names and values of a request's fields, and 32 bytes for each (RFC 9113, 10.5.1): ENHANCE_YOUR_CALM for the stream. */
  readonly headerListBytes: number;
  /** CONTINUATION frames of a header block: ENHANCE_YOUR_CALM for the connection. */
  readonly continuationFrames: number;
  /** SETTINGS and PINGs whose answers the peer has not taken: ENHANCE_YOUR_CALM for the connection. */
  readonly unwrittenAnswers: number;
  /** Requests that were given up or broken off, at once and a second: ENHANCE_YOUR_CALM for the connection. */
  readonly resets: number;
  readonly resetsPerSecond: number;
  /** Frames that carry nothing (empty DATA, PRIORITY, unknown types), likewise. */
  readonly idleFrames: number;
  readonly idleFramesPerSecond: number;
  /** Flow-control window of a request: what a client may send that nobody has read. For a connection's first large one. */
  readonly streamWindowBytes: number;
  /** The window of a request while few of its connection are large. */
  readonly largestStreamWindowBytes: number;
  /** The window of a request while many of them are. */
  readonly smallestStreamWindowBytes: number;
  /** What the windows of a connection's large requests may come to together, unless each has the smallest. */
  readonly sharedWindowBytes: number;
  /** Flow-control window of a connection. */
  readonly connectionWindowBytes: number;
}

/** The bounds unless told otherwise. */
export const DEFAULT_HTTP2_LIMITS: Http2Limits = {
  streams: 128,
  headerListBytes: 16 * 1024,
  continuationFrames: 4,
  unwrittenAnswers: 100,
  resets: 500,
  resetsPerSecond: 50,
  idleFrames: 1_000,
  idleFramesPerSecond: 100,
  streamWindowBytes: 256 * 1024,
  largestStreamWindowBytes: 1024 * 1024,
  smallestStreamWindowBytes: 32 * 1024,
  sharedWindowBytes: 2 * 1024 * 1024,
  connectionWindowBytes: 4 * 1024 * 1024,
};
