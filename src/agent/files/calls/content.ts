import { AgentError, type BorrowedBytes } from "../../domain/index.ts";
import type { NewFile } from "../entries/new-file.ts";
import { operationReturned } from "./failure.ts";
import { pathText } from "./location.ts";
import type { WriteRequest } from "./file-requests.ts";

/**
 * Number of bytes that are collected for one write(2). It is large, because waking a thread costs as much as writing
 * 256 KiB or more (decision 0023).
 */
const BATCH_BYTES = 512 * 1024;
/** Size of a batch while many files are being written. A full batch is then written before the next piece is accepted. */
const TIGHT_BATCH_BYTES = 64 * 1024;
/** Largest number of pieces in a batch. writev(2) accepts 1,024, but each piece adds to the time of the call. */
const BATCH_PIECES = 256;
/** If more files than this are being written, each write uses TIGHT_BATCH_BYTES. */
const FEW_WRITERS = 4;

export interface WriteResult {
  readonly bytesWritten: bigint;
  readonly sha256: Uint8Array | undefined;
}

export interface ContentParts {
  readonly file: Pick<NewFile, "write" | "sha256">;
  readonly expected: Pick<WriteRequest, "path" | "sizeBytes" | "sha256">;
  /** Returns how many files are being written now. */
  readonly writers: () => number;
}

/** Writes content in batches, and checks its size and SHA-256. Await `settled` before closing the file. */
export class Content {
  readonly #parts: ContentParts;
  #sizeBytes = 0n;
  #batch: BorrowedBytes[] = [];
  #batchBytes = 0;
  #writing: Promise<void> | undefined;

  constructor(parts: ContentParts) {
    this.#parts = parts;
  }

  /**
   * Adds a piece of the content, which is released once it is written. If this returns a promise, the caller must await
   * it before adding the next piece. The promise rejects if a write fails.
   *
   * @throws AgentError if the content exceeds its declared size
   */
  write(piece: BorrowedBytes): Promise<void> | undefined {
    const { length } = piece.bytes;
    this.#sizeBytes += BigInt(length);
    const { sizeBytes } = this.#parts.expected;
    if (sizeBytes !== undefined && this.#sizeBytes > sizeBytes) throw this.#sizeMismatch("more");
    this.#batch.push(piece);
    this.#batchBytes += length;
    const few = this.#parts.writers() <= FEW_WRITERS;
    const enoughBytes = few ? BATCH_BYTES : TIGHT_BATCH_BYTES;
    if (this.#batchBytes < enoughBytes && this.#batch.length < BATCH_PIECES) return undefined;
    return this.#flush().then(() => (few ? undefined : this.#writing));
  }

  /** Call it after the last piece. Throws AgentError if the size or the checksum differs from the declared one. */
  async finish(): Promise<WriteResult> {
    await this.#flush();
    await this.#writing;
    const { sizeBytes, sha256: declared } = this.#parts.expected;
    const path = pathText(this.#parts.expected.path);
    if (sizeBytes !== undefined && this.#sizeBytes !== sizeBytes) throw this.#sizeMismatch("fewer");
    const sha256 = this.#parts.file.sha256();
    if (declared !== undefined && sha256 !== undefined && Buffer.compare(sha256, declared) !== 0) {
      const message = `cannot write ${JSON.stringify(path)}: the SHA-256 of the received content differs from the declared one; send it again`;
      const metadata = {
        path,
        declared: Buffer.from(declared).toString("hex"),
        received: Buffer.from(sha256).toString("hex"),
      };
      throw new AgentError("DATA_LOSS", "CHECKSUM_MISMATCH", message, metadata);
    }
    return { bytesWritten: this.#sizeBytes, sha256 };
  }

  /** Resolves when no write is in progress. Never rejects. */
  async settled(): Promise<void> {
    await this.#writing?.catch(() => {});
  }

  /** Starts writing the batch after the previous write. Throws if the previous write failed. */
  async #flush(): Promise<void> {
    await this.#writing;
    if (this.#batch.length === 0) return;
    const batch = this.#batch;
    this.#batch = [];
    this.#batchBytes = 0;
    const release = (): void => {
      for (const piece of batch) piece.release();
    };
    this.#writing = this.#parts.file.write(batch.map(({ bytes }) => bytes)).then(release, (error: unknown) => {
      void operationReturned(error).then(release);
      throw error;
    });
    // This only prevents an unhandled rejection: the next call that awaits `#writing` throws the error.
    this.#writing.catch(() => {});
  }

  #sizeMismatch(comparison: string): AgentError {
    const { sizeBytes } = this.#parts.expected;
    const path = pathText(this.#parts.expected.path);
    const message = `cannot write ${JSON.stringify(path)}: the client sent ${comparison} bytes than size_bytes says (${sizeBytes})`;
    const metadata = { path, declared: String(sizeBytes), received: String(this.#sizeBytes) };
    return new AgentError("DATA_LOSS", "SIZE_MISMATCH", message, metadata);
  }
}
