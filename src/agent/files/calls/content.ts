import { AgentError, type LentBytes } from "../../domain/index.ts";
import type { NewFile } from "../entries/new-file.ts";
import { operationReturned } from "./failure.ts";
import { pathText } from "./location.ts";
import type { WriteRequest } from "./file-requests.ts";

/** Bytes gathered for one write: waking a thread takes as long as writing 256 KiB, or longer (decision 0023). */
const BATCH_BYTES = 512 * 1024;
/** The same while many files are written, to bound memory: each then also waits for a write before it takes more. */
const TIGHT_BATCH_BYTES = 64 * 1024;
/** Pieces of a batch at most: one system call takes as many, and each has a cost beside its bytes. */
const BATCH_PIECES = 256;
/** Files that are written at once with large batches. */
const FEW_WRITERS = 4;

/** Number of bytes written, and their SHA-256 if wanted. */
export interface WriteResult {
  readonly bytesWritten: bigint;
  readonly sha256: Uint8Array | undefined;
}

/** What a file's content needs. */
export interface ContentParts {
  readonly file: Pick<NewFile, "write" | "sha256">;
  readonly expected: Pick<WriteRequest, "path" | "sizeBytes" | "sha256">;
  /** Files that are being written now. */
  readonly writers: () => number;
}

/** Writes content as it arrives, in batches; compares size and checksum. Await `settled` before closing the file. */
export class Content {
  readonly #parts: ContentParts;
  #sizeBytes = 0n;
  #batch: LentBytes[] = [];
  #batchBytes = 0;
  #writing: Promise<void> | undefined;

  constructor(parts: ContentParts) {
    this.#parts = parts;
  }

  /**
   * Adds a piece, which is released once it is written. Returns a promise where enough is being written: it rejects if
   * that failed. Throws AgentError for too many bytes.
   */
  write(piece: LentBytes): Promise<void> | undefined {
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

  /** Call it after the last bytes. Throws AgentError when size or checksum differ from the declared ones. */
  async finish(): Promise<WriteResult> {
    await this.#flush();
    await this.#writing;
    const { sizeBytes, sha256: declared } = this.#parts.expected;
    const path = pathText(this.#parts.expected.path);
    if (sizeBytes !== undefined && this.#sizeBytes !== sizeBytes) throw this.#sizeMismatch("fewer");
    const sha256 = this.#parts.file.sha256();
    if (declared !== undefined && sha256 !== undefined && Buffer.compare(sha256, declared) !== 0) {
      const message = `cannot write ${JSON.stringify(path)}: its content has another SHA-256 than declared; send it again`;
      const metadata = {
        path,
        declared: Buffer.from(declared).toString("hex"),
        received: Buffer.from(sha256).toString("hex"),
      };
      throw new AgentError("DATA_LOSS", "CHECKSUM_MISMATCH", message, metadata);
    }
    return { bytesWritten: this.#sizeBytes, sha256 };
  }

  /** Resolves when nothing is being written. Never rejects. */
  async settled(): Promise<void> {
    await this.#writing?.catch(() => {});
  }

  /** Begins to write the batch once the previous one is written. Throws the previous one's failure. */
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
    // The next caller that awaits it gets the failure.
    this.#writing.catch(() => {});
  }

  #sizeMismatch(comparison: string): AgentError {
    const { sizeBytes } = this.#parts.expected;
    const path = pathText(this.#parts.expected.path);
    const message = `cannot write ${JSON.stringify(path)}: ${comparison} bytes came than the declared ${sizeBytes}`;
    const metadata = { path, declared: String(sizeBytes), received: String(this.#sizeBytes) };
    return new AgentError("DATA_LOSS", "SIZE_MISMATCH", message, metadata);
  }
}
