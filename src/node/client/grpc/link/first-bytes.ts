/** Size of an HTTP/2 frame header (RFC 9113, 4.1). */
export const HEAD_BYTES = 9;
const SETTINGS = 4;
const SETTING_BYTES = 6;
const QUOTED_BYTES = 100;

/**
 * Returns the first line of a server, quoted, if the server does not speak HTTP/2. An HTTP/2 server begins with a
 * SETTINGS frame on stream 0 (RFC 9113, 3.4). Returns undefined if it does, or if there are too few bytes to decide.
 */
export function unlikeHttp2(bytes: Buffer): string | undefined {
  if (bytes.length > 3 && bytes[3] !== SETTINGS) return quotedLine(bytes);
  if (bytes.length < HEAD_BYTES) return undefined;
  const isSettings = bytes.readUInt32BE(5) === 0 && bytes.readUIntBE(0, 3) % SETTING_BYTES === 0;
  return isSettings ? undefined : quotedLine(bytes);
}

/** Returns the first line of a server's bytes, quoted. */
export function quotedLine(bytes: Buffer): string {
  const [line = ""] = bytes.toString("latin1", 0, QUOTED_BYTES).split(/\r?\n/);
  return JSON.stringify(line);
}
