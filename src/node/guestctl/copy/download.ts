import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { open, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SparseFile } from "../../../shared/sparse-file.ts";
import type { PathAttributes } from "../../client/index.ts";
import { MODE_MASK, unpack } from "../../tar/index.ts";
import { CliError } from "../errors.ts";
import { guestTree } from "./guest-tree.ts";
import { localFailure, locally } from "./local-tree.ts";
import type { CopyParts } from "./report.ts";

/** Copies a file out of the sandbox, with its mode and its time. It appears under its name when it is complete. */
export async function downloadFile(
  parts: CopyParts,
  remote: string,
  stat: PathAttributes,
  local: string,
): Promise<void> {
  const { client, progress, report, host } = parts;
  const temporary = join(dirname(local), `.guestctl-${randomBytes(8).toString("hex")}.tmp`);
  const file = await locally(local, open(temporary, "wx", 0o600));
  const remove = (): void => rmSync(temporary, { force: true });
  host.once("exit", remove);
  try {
    let received = 0;
    const content = new SparseFile(file);
    for await (const chunk of client.readFile(remote)) {
      await content.write(chunk);
      received += chunk.length;
      progress.add(chunk.length);
    }
    if (received < stat.size && !isGenerated(remote))
      throw new CliError(`${remote} became shorter while it was being copied; copy it again`);
    await file.chmod(stat.mode & MODE_MASK);
    const modified = stat.mtime;
    if (modified !== undefined) await file.utimes(modified, modified);
    await rename(temporary, local);
    report.files += 1;
    report.bytes += received;
  } catch (error) {
    throw error instanceof Error && "syscall" in error ? localFailure(local, error) : error;
  } finally {
    host.off("exit", remove);
    remove();
    await file.close();
  }
}

/** Files that the kernel generates report a size of 0 or 4096, whatever they hold. */
function isGenerated(path: string): boolean {
  return /^\/+(?:proc|sys)\//.test(path);
}

/** Copies a directory out of the sandbox, whatever programs the image has. */
export async function downloadTree(parts: CopyParts, remote: string, local: string): Promise<void> {
  const { client, progress, report } = parts;
  const tree = guestTree({ client, report, progress: (bytes) => progress.add(bytes) }, remote);
  const { files, bytes } = await unpack(local, tree);
  report.files += files;
  report.bytes += bytes;
}
