import { HpackDecoder, type SecretField } from "./hpack.ts";
import type { Http2Limits } from "./limits.ts";
import { enhanceYourCalm, Flag, frameSizeError, FrameType, protocolError } from "./protocol.ts";
import { areTrailers, type RequestFields, requestFields } from "./request-fields.ts";

/** Largest encoded size of a cached header block. A typical request has about ten bytes, plus the token. */
const REMEMBERED_BLOCK_BYTES = 64;
/** Largest size of a cache entry: the block, its fields, and REMEMBERED_OVERHEAD_BYTES. */
const REMEMBERED_LIST_BYTES = 8 * 1024;
/** Limit for the cached header blocks of all connections together. */
const ALL_REMEMBERED_BYTES = 1024 * 1024;
/** Approximate memory for the objects of a cached block. */
const REMEMBERED_OVERHEAD_BYTES = 512;
let allRememberedBytes = 0;
const NO_BYTES = Buffer.alloc(0);

type BlockLimits = Pick<Http2Limits, "headerListBytes" | "continuationFrames" | "rememberedBlocks">;

export interface DecodedBlock {
  /** Whether the header list exceeded the limit. Its fields were then dropped. */
  readonly tooLarge: boolean;
  /** The decoded request fields; undefined if they are not valid in a request. */
  readonly fields: RequestFields | undefined;
  /** Whether the fields are valid as trailers. */
  readonly trailers: boolean;
}

/** A header block, with the data of its HEADERS frame. */
export interface HeaderBlock {
  readonly streamId: number;
  readonly endStream: boolean;
  /** Whether the stream depends on itself (RFC 7540, 5.3.1): an error, even though the agent ignores priorities. */
  readonly dependsOnItself: boolean;
  readonly decoded: DecodedBlock;
}

/** Assembles header blocks from HEADERS and CONTINUATION frames, and decodes them in order. */
export class HeaderBlocks {
  readonly #limits: BlockLimits;
  readonly #decoder: HpackDecoder;
  /**
   * Cache of decoded header blocks by their bytes, used only if `remembers` is set. Clients send the same block for
   * later calls of a method. Only blocks of indexed fields are cached: they do not change the dynamic table, and keep
   * their meaning until it changes.
   */
  readonly #known = new Map<string, DecodedBlock>();
  #knownVersion = 0;
  #knownBytes = 0;
  remembers = false;
  /** Stream of the header block that is incomplete; undefined between header blocks. */
  streamId: number | undefined;
  #endStream = false;
  #dependsOnItself = false;
  #block: Buffer = NO_BYTES;
  #continuations = 0;

  constructor(limits: BlockLimits, secret?: SecretField) {
    this.#limits = limits;
    this.#decoder = new HpackDecoder(limits.headerListBytes, undefined, secret);
  }

  /** Throws ConnectionError for a frame that interrupts a header block. */
  requireFrame(type: number, streamId: number): void {
    if (this.streamId === undefined) {
      if (type === FrameType.CONTINUATION) throw protocolError("CONTINUATION without HEADERS");
    } else if (type !== FrameType.CONTINUATION || streamId !== this.streamId) {
      throw protocolError("a header block was interrupted by another frame");
    }
  }

  /** Reads the payload of a HEADERS frame. Throws ConnectionError if it is malformed. */
  begin(streamId: number, flags: number, payload: Buffer): void {
    let start = 0;
    let end = payload.length;
    if (flags & Flag.PADDED) {
      end -= payload[start++] ?? 0;
      if (payload.length === 0) throw frameSizeError("HEADERS frame with the PADDED flag, but without a pad length");
    }
    this.#dependsOnItself = false;
    if (flags & Flag.PRIORITY) {
      if (start + 5 > payload.length) throw frameSizeError("HEADERS frame that is too short for its priority fields");
      this.#dependsOnItself = (payload.readUInt32BE(start) & 0x7fffffff) === streamId;
      start += 5;
    }
    if (start > end) throw protocolError("padding that is longer than its frame");
    this.streamId = streamId;
    this.#endStream = (flags & Flag.END_STREAM) !== 0;
    this.#continuations = 0;
    const block = payload.subarray(start, end);
    this.#checkSize(block.length);
    // `block` is a view that is valid only while this frame is processed. So it is copied if CONTINUATION frames
    // follow.
    if (flags & Flag.END_HEADERS) this.#block = block;
    else {
      this.#block = Buffer.from(block);
      block.fill(0);
    }
  }

  /** Appends the payload of a CONTINUATION frame. Throws ConnectionError for too many frames. */
  continue(payload: Buffer): void {
    const { continuationFrames } = this.#limits;
    if (++this.#continuations > continuationFrames)
      throw enhanceYourCalm(`more than ${continuationFrames} CONTINUATION frames`);
    this.#checkSize(this.#block.length + payload.length);
    const partial = this.#block;
    this.#block = Buffer.concat([partial, payload]);
    // A secret may be split between two frames at any byte, so both pieces are overwritten.
    partial.fill(0);
    payload.fill(0);
  }

  /** Decodes the complete block. Throws ConnectionError if it is malformed. */
  end(): HeaderBlock {
    const streamId = this.streamId as number;
    this.streamId = undefined;
    const decoded = this.#decode(this.#block);
    this.#block = NO_BYTES;
    return { streamId, endStream: this.#endStream, dependsOnItself: this.#dependsOnItself, decoded };
  }

  forget(): void {
    this.#known.clear();
    allRememberedBytes -= this.#knownBytes;
    this.#knownBytes = 0;
  }

  #checkSize(sizeBytes: number): void {
    const { headerListBytes } = this.#limits;
    if (sizeBytes > headerListBytes) throw enhanceYourCalm(`a header block of more than ${headerListBytes} bytes`);
  }

  #decode(block: Buffer): DecodedBlock {
    if (!this.remembers || !isIndexed(block)) return this.#read(block);
    if (this.#knownVersion !== this.#decoder.version || this.#known.size >= this.#limits.rememberedBlocks) {
      this.forget();
      this.#knownVersion = this.#decoder.version;
    }
    const key = block.toString("latin1");
    return this.#known.get(key) ?? this.#remember(key, this.#read(block));
  }

  #remember(key: string, decoded: DecodedBlock): DecodedBlock {
    if (decoded.fields === undefined) return decoded;
    let sizeBytes = key.length + REMEMBERED_OVERHEAD_BYTES;
    for (const name in decoded.fields) sizeBytes += name.length + (decoded.fields[name] as string).length;
    if (sizeBytes > REMEMBERED_LIST_BYTES || allRememberedBytes + sizeBytes > ALL_REMEMBERED_BYTES) return decoded;
    this.#known.set(key, decoded);
    this.#knownBytes += sizeBytes;
    allRememberedBytes += sizeBytes;
    return decoded;
  }

  #read(block: Buffer): DecodedBlock {
    const list = this.#decoder.decode(block);
    if (list === undefined) return { tooLarge: true, fields: undefined, trailers: false };
    const fields = requestFields(list);
    return { tooLarge: false, fields, trailers: fields === undefined && areTrailers(list) };
  }
}

/** Whether the block is short and each of its fields is a one-byte index. */
function isIndexed(block: Buffer): boolean {
  if (block.length > REMEMBERED_BLOCK_BYTES) return false;
  for (let at = 0; at < block.length; at++) if ((block[at] as number) < 0x80) return false;
  return true;
}
