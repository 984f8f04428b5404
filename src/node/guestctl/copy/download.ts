import { randomBytes } from "node:crypto";
import { constants, rmSync } from "node:fs";
import { lstat, open, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SparseFile } from "../../../shared/sparse-file.ts";
import type { PathAttributes } from "../../client/index.ts";
import { MODE_MASK, unpack } from "../../tar/index.ts";
import { isGenerated } from "./guest-paths.ts";
import { wholeTree } from "./guest-tree.ts";
import { becameShorter, localFailure, locally } from "./local-tree.ts";
import type { CopyParts } from "./report.ts";

/**
 * Copies a file out of the sandbox. A file appears under its name when it is complete, with its mode and its time. What
 * is there and no plain file, such as a device, a FIFO or a link to a file, is written into, as by cp(1).
 */
export async function downloadFile(
  parts: CopyParts,
  remote: string,
  stat: PathAttributes,
  local: string,
): Promise<void> {
  const there = await lstat(local).catch(() => undefined);
  await (there === undefined || there.isFile()
    ? replaceFile(parts, remote, stat, local)
    : writeInto(parts, remote, stat, local));
}

async function replaceFile(parts: CopyParts, remote: string, stat: PathAttributes, local: string): Promise<void> {
  const { host } = parts;
  const temporary = join(dirname(local), `.guestctl-${randomBytes(8).toString("hex")}.tmp`);
  const file = await locally(local, open(temporary, "wx", 0o600));
  const remove = (): void => rmSync(temporary, { force: true });
  host.once("exit", remove);
  try {
    const content = new SparseFile(file);
    const finish = await receive(parts, remote, stat, (chunk) => content.write(chunk));
    await file.chmod(stat.mode & MODE_MASK);
    const modified = stat.mtime;
    if (modified !== undefined) await file.utimes(modified, modified);
    await rename(temporary, local);
    finish();
  } catch (error) {
    throw error instanceof Error && "syscall" in error ? localFailure(local, error) : error;
  } finally {
    host.off("exit", remove);
    remove();
    await file.close();
  }
}

/** Without O_CREAT: a link to nothing is refused, as cp(1) does. */
async function writeInto(parts: CopyParts, remote: string, stat: PathAttributes, local: string): Promise<void> {
  const file = await locally(local, open(local, constants.O_WRONLY | constants.O_TRUNC));
  try {
    const finish = await receive(parts, remote, stat, (chunk) => locally(local, file.appendFile(chunk)));
    finish();
  } finally {
    await file.close();
  }
}

/** Reads all of a file. Returns what counts it. Throws CliError for one that has become shorter. */
async function receive(
  { client, progress, report }: CopyParts,
  remote: string,
  stat: PathAttributes,
  write: (chunk: Uint8Array) => Promise<void>,
): Promise<() => void> {
  let received = 0;
  for await (const chunk of client.readFile(remote)) {
    await write(chunk);
    received += chunk.length;
    progress.add(chunk.length);
  }
  if (received < stat.size && !isGenerated(remote)) throw becameShorter(remote);
  return () => {
    report.files += 1;
    report.bytes += received;
  };
}

/** Copies a folder out of the sandbox, whatever programs the image has. */
export async function downloadTree(parts: CopyParts, remote: string, local: string): Promise<void> {
  const { client, progress, report } = parts;
  const tree = wholeTree({ client, report, progress: (bytes) => progress.add(bytes) }, remote);
  const { files, bytes } = await unpack(local, tree);
  report.files += files;
  report.bytes += bytes;
}
