import type { Duplex } from "node:stream";

/** Size of an HTTP/2 frame header (RFC 9113, 4.1). */
export const HEAD_BYTES = 9;
/** Minimum size of the preface of an HTTP/2 client: a fixed text of 24 bytes and a SETTINGS frame (RFC 9113, 3.4). */
export const PREFACE_BYTES: number = 24 + HEAD_BYTES;
const SETTINGS = 4;
const SETTING_BYTES = 6;
const QUOTED_BYTES = 100;

/**
 * If the server does not speak HTTP/2, returns the first line that it has sent, quoted. Returns undefined if it speaks
 * HTTP/2, or if there are too few bytes to decide. An HTTP/2 server begins with a SETTINGS frame on stream 0 (RFC 9113,
 * 3.4).
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

/** Reads the first bytes of a stream: at least `leastBytes`, or fewer if the stream ends. */
export async function firstBytes(stream: Duplex, leastBytes: number): Promise<Buffer> {
  let bytes: Buffer = Buffer.alloc(0);
  while (bytes.length < leastBytes && !stream.readableEnded) {
    await new Promise((resolve) => stream.once("readable", resolve));
    const more = stream.read() as Buffer | null;
    if (more === null) break;
    bytes = Buffer.concat([bytes, more]);
  }
  return bytes;
}
