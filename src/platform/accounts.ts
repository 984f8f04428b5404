import { constants } from "node:fs";
import { open } from "node:fs/promises";

import { type Accounts, AgentError } from "../domain/index.ts";

const LIMIT_BYTES: number = 4 * 1024 * 1024;
const ABSENT: ReadonlySet<unknown> = new Set(["ENOENT", "ENOTDIR"]);

function unusable(path: string, problem: string, cause?: unknown): AgentError {
  return new AgentError("FAILED_PRECONDITION", "EXEC_BAD_USER", `${path} ${problem}`, { path }, cause);
}

/** The file is the image's: it may be missing, a FIFO that nobody writes to, or endless. */
async function readRegularFile(path: string): Promise<Uint8Array> {
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  const stat = await file.stat();
  if (!stat.isFile()) throw unusable(path, "is not a regular file; user names cannot be looked up in it");
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  for (;;) {
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(64 * 1024), 0, 64 * 1024, null);
    if (bytesRead === 0) return Buffer.concat(chunks, sizeBytes);
    sizeBytes += bytesRead;
    if (sizeBytes > LIMIT_BYTES) throw unusable(path, `is larger than ${LIMIT_BYTES} bytes; give the user as a number`);
    chunks.push(buffer.subarray(0, bytesRead));
  }
}

async function readDatabase(path: string): Promise<Uint8Array> {
  try {
    return await readRegularFile(path);
  } catch (error) {
    if (error instanceof AgentError) throw error;
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (ABSENT.has(code)) return new Uint8Array();
    throw unusable(path, `cannot be read (${String(code)}); user names cannot be looked up in it`, error);
  }
}

/** The user database in the files of `folder`, read afresh every time: the workload may change it. */
export function fileAccounts(folder: string = "/etc"): Accounts {
  return {
    passwd: () => readDatabase(`${folder}/passwd`),
    group: () => readDatabase(`${folder}/group`),
  };
}
