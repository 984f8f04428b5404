/** Bytes of the head of an HTTP/2 frame (RFC 9113, 4.1). */
export const HEAD_BYTES = 9;
const SETTINGS = 4;
const SETTING_BYTES = 6;
const QUOTED_BYTES = 100;

/**
 * What a server said first, quoted, if that is not HTTP/2, which begins with a SETTINGS frame of stream 0 (RFC 9113,
 * 3.4). Undefined: it is HTTP/2, or there are too few bytes to know.
 */
export function unlikeHttp2(bytes: Buffer): string | undefined {
  if (bytes.length > 3 && bytes[3] !== SETTINGS) return quotedLine(bytes);
  if (bytes.length < HEAD_BYTES) return undefined;
  const isSettings = bytes.readUInt32BE(5) === 0 && bytes.readUIntBE(0, 3) % SETTING_BYTES === 0;
  return isSettings ? undefined : quotedLine(bytes);
}

/** The first line of what a server said, quoted. */
export function quotedLine(bytes: Buffer): string {
  const [line = ""] = bytes.toString("latin1", 0, QUOTED_BYTES).split(/\r?\n/);
  return JSON.stringify(line);
}
