import type { Http2Limits } from "./limits.ts";
import type { Output } from "./output.ts";
import { ConnectionError, ErrorCode, FrameType, MAX_FRAME_BYTES, MAX_WINDOW_BYTES, Setting } from "./protocol.ts";

const ENTRY_BYTES = 6;
const LARGEST_FRAME_BYTES = 2 ** 24 - 1;

/** The peer's settings. */
export interface PeerSettings {
  /** Initial window for each of our answers. */
  initialWindowBytes: number;
  /** Largest frame that it accepts. */
  maxFrameBytes: number;
}

/** Sends SETTINGS with the given limits. */
export function writeSettings(output: Output, limits: Partial<Http2Limits>): void {
  const entries = (
    [
      [Setting.MAX_CONCURRENT_STREAMS, limits.streams],
      [Setting.INITIAL_WINDOW_SIZE, limits.streamWindowBytes],
      [Setting.MAX_HEADER_LIST_SIZE, limits.headerListBytes],
    ] as const
  ).filter(([, value]) => value !== undefined);
  const sizeBytes = entries.length * ENTRY_BYTES;
  const bytes = output.frame(FrameType.SETTINGS, 0, 0, sizeBytes, sizeBytes);
  let at = output.end - sizeBytes;
  for (const [identifier, value = 0] of entries) {
    bytes.writeUInt16BE(identifier, at);
    bytes.writeUInt32BE(value, at + 2);
    at += ENTRY_BYTES;
  }
}

/** Applies the peer's SETTINGS (RFC 9113, 6.5.2) in order. Throws ConnectionError for an invalid value. */
export function applySettings(peer: PeerSettings, payload: Buffer, limitTable: (limitBytes: number) => void): void {
  if (payload.length % ENTRY_BYTES !== 0) {
    throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong length");
  }
  for (let at = 0; at < payload.length; at += ENTRY_BYTES) {
    const value = payload.readUInt32BE(at + 2);
    switch (payload.readUInt16BE(at)) {
      case Setting.HEADER_TABLE_SIZE:
        limitTable(value);
        break;
      case Setting.ENABLE_PUSH:
        if (value > 1) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1");
        break;
      case Setting.INITIAL_WINDOW_SIZE:
        if (value > MAX_WINDOW_BYTES) {
          throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE of 2^31 bytes or more");
        }
        peer.initialWindowBytes = value;
        break;
      case Setting.MAX_FRAME_SIZE:
        if (value < MAX_FRAME_BYTES || value > LARGEST_FRAME_BYTES) {
          throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is not between 2^14 and 2^24 - 1");
        }
        peer.maxFrameBytes = value;
        break;
      default:
    }
  }
}
