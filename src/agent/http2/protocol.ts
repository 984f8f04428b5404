/** Connection preface of a client (RFC 9113, 3.4). */
export const PREFACE: Buffer = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/** Frame types (RFC 9113, 6). */
export const FrameType = {
  DATA: 0,
  HEADERS: 1,
  PRIORITY: 2,
  RST_STREAM: 3,
  SETTINGS: 4,
  PUSH_PROMISE: 5,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
  CONTINUATION: 9,
} as const;

/** Frame flags. ACK is used by SETTINGS and PING, END_STREAM by DATA and HEADERS. */
export const Flag = { END_STREAM: 0x1, ACK: 0x1, END_HEADERS: 0x4, PADDED: 0x8, PRIORITY: 0x20 } as const;

/** Parameters of SETTINGS (RFC 9113, 6.5.2). */
export const Setting = {
  HEADER_TABLE_SIZE: 1,
  ENABLE_PUSH: 2,
  MAX_CONCURRENT_STREAMS: 3,
  INITIAL_WINDOW_SIZE: 4,
  MAX_FRAME_SIZE: 5,
  MAX_HEADER_LIST_SIZE: 6,
} as const;

/** Error codes that the agent sends in RST_STREAM and GOAWAY (RFC 9113, 7). */
export const ErrorCode = {
  NO_ERROR: 0,
  PROTOCOL_ERROR: 1,
  INTERNAL_ERROR: 2,
  FLOW_CONTROL_ERROR: 3,
  STREAM_CLOSED: 5,
  FRAME_SIZE_ERROR: 6,
  REFUSED_STREAM: 7,
  CANCEL: 8,
  COMPRESSION_ERROR: 9,
  CONNECT_ERROR: 10,
  ENHANCE_YOUR_CALM: 11,
} as const;

/** Size of a frame header (RFC 9113, 4.1). */
export const FRAME_HEADER_BYTES = 9;
/** Largest frame payload that the agent accepts: the smallest limit that the protocol allows. */
export const MAX_FRAME_BYTES = 16_384;
/** Initial window of streams and of the connection (RFC 9113, 6.9.2). */
export const DEFAULT_WINDOW_BYTES = 65_535;
/** Largest window (RFC 9113, 6.9.1). */
export const MAX_WINDOW_BYTES: number = 2 ** 31 - 1;
/**
 * Largest stream id. A GOAWAY with this id announces the end of the connection, but the agent still accepts requests
 * that are in flight (RFC 9113, 6.8).
 */
export const LAST_STREAM_ID: number = 2 ** 31 - 1;

/** Name of an error code for logs: "ENHANCE_YOUR_CALM", or its number if the RFC does not define it. */
export function errorName(code: number): string {
  return Object.entries(ErrorCode).find(([, value]) => value === code)?.[0] ?? `error ${code}`;
}

/** An error that the peer caused. The connection is closed with a GOAWAY that contains this code. */
export class ConnectionError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** The error for a peer that violated the protocol. */
export function protocolError(problem: string): ConnectionError {
  return new ConnectionError(ErrorCode.PROTOCOL_ERROR, problem);
}

/** The error for a flow-control window that was exceeded or grew too large. */
export function flowControlError(problem: string): ConnectionError {
  return new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, problem);
}

/** The error for a frame whose length is invalid for its type. */
export function frameSizeError(problem: string): ConnectionError {
  return new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, problem);
}

/** The error for a peer that sends too many frames of a kind that is allowed: ENHANCE_YOUR_CALM. */
export function enhanceYourCalm(problem: string): ConnectionError {
  return new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, problem);
}
