import type { BufferPool, BufferPoolSizes, BorrowedBytes } from "../../domain/index.ts";
import type { FileAttributes } from "../attributes.ts";
import type { RegularFile } from "../open/regular-file.ts";
import { operationReturned } from "./failure.ts";
import type { ReadRequest } from "./file-requests.ts";

/** Largest chunk of a file in one message. */
const CHUNK_BYTES = 256 * 1024;

/** Buffers shared by all reads. They are freed when no file is being read. */
export const FILE_BUFFERS: BufferPoolSizes = {
  fullBytes: CHUNK_BYTES,
  tightBytes: 64 * 1024,
  tightAboveBytes: 2 * 1024 * 1024,
  keptBytes: 8 * 1024 * 1024,
  keptAtRestBytes: 0,
};

/**
 * Receives the next chunk of a file. `bytes` are valid until `release`, which must be called exactly once. Too many
 * chunks without `release` pause the reader. The first chunk has the attributes and may be empty.
 */
export type ReadOutput = (bytes: Uint8Array, attributes: FileAttributes | undefined, release: () => void) => void;

/**
 * Receives the size of the next hole, and also the attributes if no chunk or other hole came before it. Resolves when
 * the hole was sent.
 */
export type HoleOutput = (sizeBytes: bigint, attributes: FileAttributes | undefined) => Promise<void>;

export interface ReadParts {
  readonly file: RegularFile;
  readonly request: Pick<ReadRequest, "offsetBytes" | "lengthBytes">;
  readonly buffers: BufferPool;
  readonly output: ReadOutput;
  /** Receives each hole of at least 64 KiB. If undefined, the zeros of holes are read as data. */
  readonly hole?: HoleOutput | undefined;
  /** When this signal is aborted, reading fails with the signal's reason. */
  readonly signal: AbortSignal;
}

/**
 * Returns the offset at which reading ends, which is at most the size of the file when it was opened. Returns undefined
 * to read until EOF, for example for files of /proc, whose size is 0.
 */
function endOf({ file, request }: ReadParts): bigint | undefined {
  const sizeBytes = file.attributes.sizeBytes === 0n ? undefined : file.attributes.sizeBytes;
  if (request.lengthBytes === 0n) return sizeBytes;
  const wantedEnd = request.offsetBytes + request.lengthBytes;
  return sizeBytes === undefined || wantedEnd < sizeBytes ? wantedEnd : sizeBytes;
}

function wantedBytes(position: bigint, end: bigint | undefined): number {
  if (end === undefined) return CHUNK_BYTES;
  const left = end - position;
  return left < BigInt(CHUNK_BYTES) ? Math.max(0, Number(left)) : CHUNK_BYTES;
}

/**
 * Largest number of chunks of one transfer that were read but not sent yet. With two, the next chunk is read while one
 * is sent.
 */
const IN_FLIGHT = 2;
/** While memory is tight, the next chunk is read only after the previous one was sent. */
const IN_FLIGHT_TIGHT = 1;

/** Limits how many buffers of one transfer are in flight, which means taken and not yet released. */
class InFlightLimit {
  readonly #buffers: BufferPool;
  #inFlight = 0;
  #wake: (() => void) | undefined;

  constructor(buffers: BufferPool) {
    this.#buffers = buffers;
  }

  /** Takes a buffer. If the allowed number is in flight, first waits for a release. Await it before the next call. */
  async take(sizeBytes: number): Promise<BorrowedBytes> {
    while (this.#inFlight >= (this.#buffers.tight ? IN_FLIGHT_TIGHT : IN_FLIGHT)) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    this.#inFlight += 1;
    const borrowed = this.#buffers.acquire(sizeBytes);
    return {
      bytes: borrowed.bytes,
      release: (): void => {
        borrowed.release();
        this.#inFlight -= 1;
        this.#wake?.();
      },
    };
  }
}

/**
 * Reads the file, or the requested range, into chunks for the output. All chunks are full, except for the last one and
 * for a chunk before a hole.
 */
export async function readChunks(parts: ReadParts): Promise<void> {
  const { file, request, hole } = parts;
  const reader = new ChunkReader(parts);
  const begin = request.offsetBytes;
  const end = endOf(parts);
  if (hole !== undefined && end !== undefined && begin < end && file.attributes.hasHoles === true)
    await reader.readSparse(begin, end, hole);
  // A read from the beginning uses the file position instead of offsets, because some files of /proc do not support
  // pread(2).
  else await reader.read(begin, end, begin === 0n);
}

class ChunkReader {
  readonly #parts: ReadParts;
  readonly #limit: InFlightLimit;
  #attributes: FileAttributes | undefined;

  constructor(parts: ReadParts) {
    this.#parts = parts;
    this.#limit = new InFlightLimit(parts.buffers);
    this.#attributes = parts.file.attributes;
  }

  /** Reads data and holes from `begin` to `end`. Stops early if the file was truncated meanwhile. */
  async readSparse(begin: bigint, end: bigint, hole: HoleOutput): Promise<void> {
    const least = (offset: bigint): bigint => (offset < end ? offset : end);
    for (let at = begin; at < end;) {
      const { beginBytes, endBytes } = await this.#parts.file.nextData(at);
      const [dataBegin, dataEnd] = [least(beginBytes), least(endBytes)];
      if (dataBegin > at) await hole(dataBegin - at, this.#takeAttributes());
      // The file has no more data.
      if (dataEnd <= dataBegin) return;
      if ((await this.read(dataBegin, dataEnd, false)) < dataEnd) return;
      at = dataEnd;
    }
  }

  /** Reads to `end`, or to the file's end. Returns the offset where it stopped. */
  async read(begin: bigint, end: bigint | undefined, sequential: boolean): Promise<bigint> {
    const { file, output, signal } = this.#parts;
    let position = begin;
    for (;;) {
      const wanted = wantedBytes(position, end);
      const buffer = await this.#limit.take(wanted);
      const target = buffer.bytes.subarray(0, Math.min(wanted, buffer.bytes.length));
      const filled = await fill(file, target, position, sequential, signal).catch((error: unknown) => {
        void operationReturned(error).then(() => buffer.release());
        throw error;
      });
      position += BigInt(filled);
      const attributes = this.#takeAttributes();
      if (filled > 0 || attributes !== undefined)
        output(target.subarray(0, filled), attributes, () => buffer.release());
      else buffer.release();
      if (filled < target.length || position === end || wanted === 0) return position;
    }
  }

  #takeAttributes(): FileAttributes | undefined {
    const attributes = this.#attributes;
    this.#attributes = undefined;
    return attributes;
  }
}

/** Reads until the target is full or the file ends. Several reads may be needed: /proc returns a page at a time. */
async function fill(
  file: RegularFile,
  target: Uint8Array,
  position: bigint,
  sequential: boolean,
  signal: AbortSignal,
): Promise<number> {
  let filled = 0;
  while (filled < target.length) {
    signal.throwIfAborted();
    const offsetBytes = sequential ? undefined : position + BigInt(filled);
    const count = await file.read(filled === 0 ? target : target.subarray(filled), offsetBytes);
    if (count === 0) break;
    filled += count;
  }
  signal.throwIfAborted();
  return filled;
}
