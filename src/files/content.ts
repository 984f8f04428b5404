import { AgentError, type NewFile } from "../domain/index.ts";
import type { WriteRequest } from "./requests.ts";

/** Smaller pieces are gathered up to this size before they are written. */
const GATHER_BYTES = 64 * 1024;
/** Pieces of at least this size are written as they are. */
const DIRECT_BYTES = 16 * 1024;

/** Size of what was written, and its SHA-256 unless nobody wants it. */
export interface WriteResult {
  readonly bytesWritten: bigint;
  readonly sha256: Uint8Array | undefined;
}

type Expected = Pick<WriteRequest, "path" | "sizeBytes" | "sha256">;

/** Writes content as it arrives, and compares it with the declared size and checksum. */
export class Content {
  readonly #file: NewFile;
  readonly #expected: Expected;
  #sizeBytes = 0n;
  #gathered: Buffer | undefined;
  #gatheredBytes = 0;

  constructor(file: NewFile, expected: Expected) {
    this.#file = file;
    this.#expected = expected;
  }

  /** Adds bytes, which the caller may reuse once it resolves. Throws AgentError when they exceed the declared size. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#sizeBytes += BigInt(bytes.length);
    const { sizeBytes } = this.#expected;
    if (sizeBytes !== undefined && this.#sizeBytes > sizeBytes) throw this.#sizeMismatch("more");
    if (bytes.length >= DIRECT_BYTES || this.#gatheredBytes + bytes.length > GATHER_BYTES) await this.#flush();
    if (bytes.length >= DIRECT_BYTES) {
      await this.#file.write(bytes);
    } else {
      this.#gathered ??= Buffer.allocUnsafeSlow(GATHER_BYTES);
      this.#gathered.set(bytes, this.#gatheredBytes);
      this.#gatheredBytes += bytes.length;
    }
  }

  /** Call it after the last bytes. Throws AgentError when size or checksum differ from the declared ones. */
  async finish(): Promise<WriteResult> {
    await this.#flush();
    const { path, sizeBytes, sha256: declared } = this.#expected;
    if (sizeBytes !== undefined && this.#sizeBytes !== sizeBytes) throw this.#sizeMismatch("fewer");
    const sha256 = this.#file.sha256();
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

  async #flush(): Promise<void> {
    if (this.#gathered === undefined || this.#gatheredBytes === 0) return;
    await this.#file.write(this.#gathered.subarray(0, this.#gatheredBytes));
    this.#gatheredBytes = 0;
  }

  #sizeMismatch(comparison: string): AgentError {
    const { path, sizeBytes } = this.#expected;
    const message = `cannot write ${JSON.stringify(path)}: ${comparison} bytes came than the declared ${sizeBytes}`;
    const metadata = { path, declared: String(sizeBytes), received: String(this.#sizeBytes) };
    return new AgentError("DATA_LOSS", "SIZE_MISMATCH", message, metadata);
  }
}
