import { randomBytes } from "node:crypto";
import { open, rename, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { StatPathResponse } from "../../gen/svc/guest/v1alpha1/files_pb.ts";
import { CliError } from "../errors.ts";
import { localFailure } from "./local-tree.ts";
import { SparseFile } from "./sparse-file.ts";
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
