import { randomBytes } from "node:crypto";
import { type FileHandle, open, rename, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { StatPathResponse } from "../../gen/svc/guest/v1alpha1/files_pb.ts";
import { CliError } from "../errors.ts";
import { localFailure } from "./local-tree.ts";
import type { CopyParts } from "./upload.ts";

/** A sandbox must not be able to leave programs here that run as somebody else. */
export const MODE_MASK = 0o777;

/** Copies a file out of the sandbox, with its mode and its time. It appears under its name when it is complete. */
export async function downloadFile(
  parts: CopyParts,
  remote: string,
  stat: StatPathResponse,
  local: string,
): Promise<void> {
  const { client, progress, report } = parts;
  const temporary = join(dirname(local), `.guestctl-${randomBytes(8).toString("hex")}.tmp`);
  const file = await open(temporary, "wx", 0o600).catch((error: unknown) => {
    throw localFailure(local, error);
  });
  try {
    let received = 0;
    const content = new SparseFile(file);
    for await (const chunk of client.readFile(remote)) {
      await content.write(chunk);
      received += chunk.length;
      progress.add(chunk.length);
    }
    if (BigInt(received) < stat.size && !isGenerated(remote))
      throw new CliError(`${remote} became shorter while it was being copied; copy it again`);
    await content.end();
    await file.chmod(stat.mode & MODE_MASK);
    const modified = stat.mtime && timestampDate(stat.mtime);
    if (modified !== undefined) await file.utimes(modified, modified);
    await rename(temporary, local);
    report.files += 1;
    report.bytes += received;
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw error instanceof Error && "syscall" in error ? localFailure(local, error) : error;
  } finally {
    await file.close();
  }
}

/** Files that the kernel makes up tell sizes that mean nothing. */
function isGenerated(path: string): boolean {
  return /^\/+(?:proc|sys)\//.test(path);
}

/** Pieces that are looked at: the blocks of most file systems. */
const BLOCK_BYTES = 4096;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

/**
 * Writes a new file from its beginning to its end. Blocks of zeros are left out: a sparse file of a sandbox, whose holes
 * arrive as zeros, takes no more room here than it does there.
 */
export class SparseFile {
  readonly #file: FileHandle;
  #sizeBytes = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  /** Appends. */
  async write(bytes: Uint8Array): Promise<void> {
    let from = 0;
    for (let at = 0; at < bytes.length;) {
      const end = Math.min(bytes.length, at + BLOCK_BYTES - ((this.#sizeBytes + at) % BLOCK_BYTES));
      // What comes in parts of a block is left out in parts.
      const isHole = ZEROS.subarray(0, end - at).equals(bytes.subarray(at, end));
      if (isHole) {
        await this.#writeAll(bytes.subarray(from, at), this.#sizeBytes + from);
        from = end;
      }
      at = end;
    }
    await this.#writeAll(bytes.subarray(from), this.#sizeBytes + from);
    this.#sizeBytes += bytes.length;
  }

  /** Gives the file its size, as a hole at its end would be missing. */
  async end(): Promise<void> {
    await this.#file.truncate(this.#sizeBytes);
  }

  async #writeAll(bytes: Uint8Array, position: number): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      at += (await this.#file.write(bytes, at, bytes.length - at, position + at)).bytesWritten;
    }
  }
}
