import { HpackDecoder } from "./hpack.ts";
import type { Http2Limits } from "./limits.ts";
import { ConnectionError, ErrorCode, Flag, FrameType, protocolError } from "./protocol.ts";
import { areTrailers, type RequestFields, requestFields } from "./request-fields.ts";

/** Remembered blocks: several times the kinds of calls that a client makes. */
const REMEMBERED_BLOCKS = 64;

/** A decoded header block. */
export interface DecodedBlock {
  /** The list is over the limit, and was not kept. */
  readonly tooLarge: boolean;
  /** Undefined: they are not the fields of a request. */
  readonly fields: RequestFields | undefined;
  /** They may follow a request's body. */
  readonly trailers: boolean;
}

/** A header block and the frame that began it. */
export interface HeaderBlock {
  readonly streamId: number;
  readonly endStream: boolean;
  /** The stream depends on itself (RFC 7540, 5.3.1): malformed, although priorities are ignored. */
  readonly dependsOnItself: boolean;
  readonly decoded: DecodedBlock;
}

/** Assembles header blocks from HEADERS and CONTINUATION, and decodes them in order. */
export class HeaderBlocks {
  readonly #limits: Pick<Http2Limits, "headerListBytes" | "continuationFrames">;
  readonly #decoder: HpackDecoder;
  /**
   * Decoded blocks that consist of indexed fields alone, by their bytes: they do not change the table, and mean the same
   * while it does not change. A client's second call of a kind is such a block.
   */
  readonly #known = new Map<string, DecodedBlock>();
  #knownVersion = 0;
  /** The stream whose block is not complete; undefined between blocks. */
  streamId: number | undefined;
  #endStream = false;
  #dependsOnItself = false;
  #block: Buffer = Buffer.alloc(0);
  #continuations = 0;

  constructor(limits: Pick<Http2Limits, "headerListBytes" | "continuationFrames">) {
    this.#limits = limits;
    this.#decoder = new HpackDecoder(limits.headerListBytes);
  }

  /** Throws ConnectionError for a frame that interrupts a header block. */
  requireFrame(type: number, streamId: number): void {
    if (this.streamId === undefined) {
      if (type === FrameType.CONTINUATION) throw protocolError("CONTINUATION of nothing");
    } else if (type !== FrameType.CONTINUATION || streamId !== this.streamId) {
      throw protocolError("another frame within a header block");
    }
  }

  /** Reads the payload of HEADERS. Throws ConnectionError where it is malformed. */
  begin(streamId: number, flags: number, payload: Buffer): void {
    let start = 0;
    let end = payload.length;
    if (flags & Flag.PADDED) {
      end -= payload[start++] ?? 0;
      if (payload.length === 0) throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "padded HEADERS without padding");
    }
    this.#dependsOnItself = false;
    if (flags & Flag.PRIORITY) {
      if (start + 5 > payload.length)
        throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without their priority");
      this.#dependsOnItself = (payload.readUInt32BE(start) & 0x7fffffff) === streamId;
      start += 5;
    }
    if (start > end) throw protocolError("padding that is longer than its frame");
    this.streamId = streamId;
    this.#endStream = (flags & Flag.END_STREAM) !== 0;
    this.#continuations = 0;
    const block = payload.subarray(start, end);
    // The view is valid only while the frame is handled: copy a block that continues in other frames.
    this.#block = flags & Flag.END_HEADERS ? block : Buffer.from(block);
  }

  /** Adds the payload of CONTINUATION. Throws ConnectionError at too many frames. */
  continue(payload: Buffer): void {
    const { continuationFrames } = this.#limits;
    if (++this.#continuations > continuationFrames) {
      throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, `more than ${continuationFrames} CONTINUATION frames`);
    }
    this.#block = Buffer.concat([this.#block, payload]);
  }

  /** Decodes the block that is now complete. Throws ConnectionError where it is malformed. */
  end(): HeaderBlock {
    const streamId = this.streamId as number;
    this.streamId = undefined;
    const decoded = this.#decode(this.#block);
    return { streamId, endStream: this.#endStream, dependsOnItself: this.#dependsOnItself, decoded };
  }

  #decode(block: Buffer): DecodedBlock {
    if (!isIndexed(block)) return this.#read(block);
    if (this.#knownVersion !== this.#decoder.version || this.#known.size >= REMEMBERED_BLOCKS) {
      this.#known.clear();
      this.#knownVersion = this.#decoder.version;
    }
    const key = block.toString("latin1");
    let decoded = this.#known.get(key);
    if (decoded === undefined) {
      decoded = this.#read(block);
      this.#known.set(key, decoded);
    }
    return decoded;
  }

  #read(block: Buffer): DecodedBlock {
    const list = this.#decoder.decode(block);
    if (list === undefined) return { tooLarge: true, fields: undefined, trailers: false };
    const fields = requestFields(list);
    return { tooLarge: false, fields, trailers: fields === undefined && areTrailers(list) };
  }
}

/** True when every field of the block is one byte, an index into the tables. */
function isIndexed(block: Buffer): boolean {
  for (let at = 0; at < block.length; at++) if ((block[at] as number) < 0x80) return false;
  return true;
}
