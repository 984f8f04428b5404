import type { FloodGuard, Http2Limits } from "./limits.ts";
import type { Output } from "./output.ts";
import {
  Flag,
  flowControlError,
  frameSizeError,
  FrameType,
  MAX_FRAME_BYTES,
  MAX_WINDOW_BYTES,
  protocolError,
  Setting,
} from "./protocol.ts";

const ENTRY_BYTES = 6;
const LARGEST_FRAME_BYTES = 2 ** 24 - 1;

export interface PeerSettings {
  /** Flow-control window that each new response begins with, in bytes (SETTINGS_INITIAL_WINDOW_SIZE). */
  initialWindowBytes: number;
  /** Largest frame that the peer accepts. */
  maxFrameBytes: number;
}

/** Writes a SETTINGS frame (RFC 9113, 6.5). An undefined limit is left out, so the protocol's default applies. */
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
    throw frameSizeError("SETTINGS with an invalid length");
  }
  for (let at = 0; at < payload.length; at += ENTRY_BYTES) {
    const value = payload.readUInt32BE(at + 2);
    switch (payload.readUInt16BE(at)) {
      case Setting.HEADER_TABLE_SIZE:
        limitTable(value);
        break;
      case Setting.ENABLE_PUSH:
        if (value > 1) throw protocolError("ENABLE_PUSH must be 0 or 1");
        break;
      case Setting.INITIAL_WINDOW_SIZE:
        if (value > MAX_WINDOW_BYTES) throw flowControlError("INITIAL_WINDOW_SIZE of 2^31 bytes or more");
        peer.initialWindowBytes = value;
        break;
      case Setting.MAX_FRAME_SIZE:
        if (value < MAX_FRAME_BYTES || value > LARGEST_FRAME_BYTES) {
          throw protocolError("MAX_FRAME_SIZE is not between 2^14 and 2^24 - 1");
        }
        peer.maxFrameBytes = value;
        break;
      default:
    }
  }
}

const PING_BYTES = 8;

/** Sends and answers PINGs, and remembers the PINGs that the peer has not answered. */
export class Pings {
  readonly #output: Output;
  readonly #floods: FloodGuard;
  readonly #unanswered = new Map<number, () => void>();
  #number = 0;

  constructor(output: Output, floods: FloodGuard) {
    this.#output = output;
    this.#floods = floods;
  }

  send(answered: () => void): void {
    const number = ++this.#number;
    this.#unanswered.set(number, answered);
    const bytes = Buffer.alloc(PING_BYTES);
    bytes.writeUInt32BE(number, 4);
    this.#output.ping(0, bytes);
  }

  /**
   * Handles a PING or the answer to a PING. Returns true if the caller must write an answer. Throws ConnectionError for
   * an invalid frame.
   */
  receive(flags: number, streamId: number, payload: Buffer): boolean {
    if (streamId !== 0) throw protocolError("PING with a stream id");
    if (payload.length !== PING_BYTES) throw frameSizeError("PING with an invalid length");
    if ((flags & Flag.ACK) === 0) {
      this.#output.ping(Flag.ACK, payload);
      this.#floods.answer("PINGs");
      return true;
    }
    const number = payload.readUInt32BE(4);
    const answered = this.#unanswered.get(number);
    if (answered === undefined) this.#floods.idleFrame("answers to PINGs that were never sent");
    this.#unanswered.delete(number);
    answered?.();
    return false;
  }
}
