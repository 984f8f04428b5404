import type { BufferPool, BufferPoolSizes, LentBytes } from "../../domain/index.ts";
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
 * Receives the next chunk of a file, valid until `release`. The first chunk, which may be empty, comes with the
 * attributes. Call `release` exactly once per chunk: the reader pauses while too many are not released.
 */
export type ReadOutput = (bytes: Uint8Array, attributes: FileAttributes | undefined, release: () => void) => void;

export interface ReadParts {
  readonly file: RegularFile;
  readonly request: ReadRequest;
  readonly buffers: BufferPool;
  readonly output: ReadOutput;
  /** When it is aborted, its reason is thrown. */
  readonly signal: AbortSignal;
}

/**
 * The offset at which reading ends, at most the size at open time, so that a growing file is read as it was then.
 * Undefined: read until EOF, because files of /proc have size 0.
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

/** Chunks of one transfer in flight: one is sent while the next one is read. */
const IN_FLIGHT = 2;
/** While memory is tight, the next chunk is read only after the previous one was sent. */
const IN_FLIGHT_TIGHT = 1;

/** Limits how many buffers of one transfer are in flight. */
class InFlightLimit {
  readonly #buffers: BufferPool;
  #inFlight = 0;
  #wake: (() => void) | undefined;

  constructor(buffers: BufferPool) {
    this.#buffers = buffers;
  }

  /** Resolves with a buffer as soon as fewer are in flight than allowed. Await it before the next call. */
  async take(sizeBytes: number): Promise<LentBytes> {
    while (this.#inFlight >= (this.#buffers.tight ? IN_FLIGHT_TIGHT : IN_FLIGHT)) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    this.#inFlight += 1;
    const lent = this.#buffers.lend(sizeBytes);
    return {
      bytes: lent.bytes,
      release: (): void => {
        lent.release();
        this.#inFlight -= 1;
        this.#wake?.();
      },
    };
  }
}

/** Reads the file, or the requested range, into chunks for the output. All but the last are full. */
export async function readChunks(parts: ReadParts): Promise<void> {
  const { file, request, output, signal } = parts;
  const limit = new InFlightLimit(parts.buffers);
  const end = endOf(parts);
  let position = request.offsetBytes;
  let attributes: FileAttributes | undefined = file.attributes;
  for (;;) {
    const wanted = wantedBytes(position, end);
    const buffer = await limit.take(wanted);
    const target = buffer.bytes.subarray(0, Math.min(wanted, buffer.bytes.length));
    const filled = await fill(file, target, position, request.offsetBytes === 0n, signal).catch((error: unknown) => {
      void operationReturned(error).then(() => buffer.release());
      throw error;
    });
    position += BigInt(filled);
    if (filled > 0 || attributes !== undefined) output(target.subarray(0, filled), attributes, () => buffer.release());
    else buffer.release();
    attributes = undefined;
    if (filled < target.length || position === end || wanted === 0) return;
  }
}

/** Reads until the target is full or the file ends. A read of a /proc file returns only a page at a time. */
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
