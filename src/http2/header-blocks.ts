import { HpackDecoder } from "./hpack.ts";
import type { Http2Limits } from "./limits.ts";
import { ConnectionError, ErrorCode, Flag } from "./protocol.ts";
import { areTrailers, type RequestFields, requestFields } from "./request-fields.ts";

/** Blocks that are remembered: as many as a client has kinds of calls, some times over. */
const REMEMBERED_BLOCKS = 64;

/** What a header block says. */
export interface DecodedBlock {
  /** The list is over the limit, and not kept. */
  readonly tooLarge: boolean;
  /** Undefined: these are no fields of a request. */
  readonly fields: RequestFields | undefined;
  /** They may stand behind a request's body. */
  readonly trailers: boolean;
}

/** A header block and the frame that began it. */
export interface HeaderBlock {
  readonly streamId: number;
  readonly endStream: boolean;
  /** The stream depends on itself (RFC 9113, 5.3.1 of RFC 7540): malformed, though priorities are ignored. */
  readonly dependsOnItself: boolean;
  readonly decoded: DecodedBlock;
}

/** Puts header blocks together from HEADERS and CONTINUATION, and decodes them in their order. */
export class HeaderBlocks {
  readonly #limits: Pick<Http2Limits, "headerListBytes" | "continuationFrames">;
  readonly #decoder: HpackDecoder;
  /**
   * What blocks of indexed fields alone mean, by their bytes: they change nothing, and mean the same as long as the table
   * is the same. A client's second call of a kind is such a block.
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

  /** Takes the payload of HEADERS. Throws ConnectionError where it is malformed. */
  begin(streamId: number, flags: number, payload: Buffer): void {
    let start = 0;
    let end = payload.length;
    if (flags & Flag.PADDED) {
      end -= payload[start++] ?? 0;
      if (payload.length === 0) throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "padded HEADERS without padding");
    }
    this.#dependsOnItself = false;
    if (flags & Flag.PRIORITY) {
      if (start + 5 > payload.length) throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without their priority");
      this.#dependsOnItself = (payload.readUInt32BE(start) & 0x7fffffff) === streamId;
      start += 5;
    }
    if (start > end) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, "padding that is longer than its frame");
    this.streamId = streamId;
    this.#endStream = (flags & Flag.END_STREAM) !== 0;
    this.#continuations = 0;
    const block = payload.subarray(start, end);
    // A view holds until the frame has been handled: a block that goes on in other frames needs its own memory.
    this.#block = flags & Flag.END_HEADERS ? block : Buffer.from(block);
  }

  /** Takes the payload of CONTINUATION. Throws ConnectionError where there is too much of it. */
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

/** Every field of the block is one byte, an index into the tables. */
function isIndexed(block: Buffer): boolean {
  for (let at = 0; at < block.length; at++) if ((block[at] as number) < 0x80) return false;
  return true;
}
