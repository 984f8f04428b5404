import { randomBytes } from "node:crypto";
import { constants, rmSync } from "node:fs";
import { link as giveName, lstat, open, rename } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";
import { Readable } from "node:stream";
import { SparseFile } from "../../../shared/sparse-file.ts";
import type { LeftEntry, PathAttributes } from "../../client/index.ts";
import {
  becameShorter,
  currentUmask,
  type EntryError,
  MODE_MASK,
  ownerIn,
  secondsNotBefore,
  type TarEntry,
  unpack,
  type Unpacked,
  UnpackError,
} from "../../tar/index.ts";
import { isGenerated } from "./guest-paths.ts";
import { guestTree } from "./guest-tree.ts";
import { CliError, nameBytes, nameOf } from "../cli/index.ts";
import { localFailure, locally } from "./local-paths.ts";
import { ifTooOld } from "./older-agents.ts";
import { type CopyContext, type CopyParts, errnoWords } from "./report.ts";
import { onReconnect } from "./resumed.ts";
import { ifPartial } from "./source-failure.ts";

const NONE = Buffer.alloc(0);
/** An owner or a group that stays (chown(2)). */
const UNCHANGED = 2 ** 32 - 1;
const NS_PER_SECOND = 1_000_000_000n;

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
  const there = await lstat(nameOf(local)).catch(() => undefined);
  await (there === undefined || there.isFile()
    ? replaceFile(parts, remote, stat, local)
    : writeInto(parts, remote, stat, local));
}

async function replaceFile(parts: CopyParts, remote: string, stat: PathAttributes, local: string): Promise<void> {
  const { host } = parts;
  const temporary = nameOf(join(dirname(local), `.guestctl-${randomBytes(8).toString("hex")}.tmp`));
  const file = await locally(local, open(temporary, "wx", 0o600));
  const remove = (): void => rmSync(temporary, { force: true });
  host.once("exit", remove);
  try {
    const content = new SparseFile(file);
    const finish = await receive(parts, remote, stat, (chunk) => content.write(chunk));
    const { uid, gid } = ownerIn(parts.options.owners, stat);
    if (uid !== undefined || gid !== undefined) await file.chown(uid ?? UNCHANGED, gid ?? UNCHANGED);
    await file.chmod(modeHere(parts, stat.mode));
    const modified = modifiedSeconds(stat);
    // As text: Node reads a negative number as "now".
    if (modified !== undefined) await file.utimes(String(modified), String(modified));
    if (parts.options.keepExisting) await giveName(temporary, nameOf(local));
    else await rename(temporary, nameOf(local));
    finish();
  } catch (error) {
    throw error instanceof Error && "syscall" in error ? localFailure(local, error) : error;
  } finally {
    host.off("exit", remove);
    remove();
    await file.close();
  }
}

function modifiedSeconds({ mtime, mtimeNanos }: PathAttributes): number | undefined {
  if (mtime === undefined) return undefined;
  return secondsNotBefore(BigInt(Math.floor(mtime.getTime() / 1_000)) * NS_PER_SECOND + BigInt(mtimeNanos));
}

/** Without -a and -p, the umask takes bits away, as with cp(1), scp(1) and tar(1). */
function modeHere({ options }: CopyParts, mode: number): number {
  return mode & MODE_MASK & ~(options.keepsModes ? 0 : currentUmask());
}

/** Without O_CREAT: a link to nothing is refused, as cp(1) does. */
async function writeInto(parts: CopyParts, remote: string, stat: PathAttributes, local: string): Promise<void> {
  const file = await locally(local, open(nameOf(local), constants.O_WRONLY | constants.O_TRUNC));
  try {
    const finish = await receive(parts, remote, stat, (chunk) => locally(local, file.appendFile(chunk)));
    finish();
  } finally {
    await file.close();
  }
}

/** Reads all of a file, as long as it was. Returns what counts it. Throws CliError for one that has become shorter. */
async function receive(
  { client, progress, report }: CopyParts,
  remote: string,
  { size }: PathAttributes,
  write: (chunk: Uint8Array) => Promise<void>,
): Promise<() => void> {
  let received = 0;
  // A file without a size has to be read to its end: the kernel generates it, or a program.
  const length = size === 0 || isGenerated(remote) ? undefined : size;
  for await (const chunk of client.readFile(nameOf(remote), { length })) {
    await write(chunk);
    received += chunk.length;
    progress.add(chunk.length);
  }
  if (length !== undefined && received < length) throw becameShorter(`:${remote}`);
  return () => {
    report.files += 1;
    report.bytes += received;
  };
}

/** Copies a link out of the sandbox, as a link. */
export async function downloadLink(
  { report, options }: CopyContext,
  link: PathAttributes,
  local: string,
): Promise<void> {
  const { linkTarget = NONE, mode, uid, gid } = link;
  const [name, mtimeSeconds] = [nameBytes(basename(local)), modifiedSeconds(link) ?? 0];
  const entry: TarEntry = {
    type: "symlink",
    name,
    linkTarget,
    mode,
    uid,
    gid,
    mtimeSeconds,
    size: 0,
    content: Readable.from([]),
  };
  await unpack(nameOf(dirname(local)), Readable.from([entry]), options.owners);
  report.files += 1;
}

/** Copies a directory out of the sandbox, whatever programs the image has. */
export async function downloadTree(parts: CopyParts, remote: string, local: string): Promise<void> {
  const { client, progress, report, options } = parts;
  const { failFast, exclude, keepsModes, oneFileSystem, owners, hardLinks, followLinks, keepExisting } = options;
  const onBytes = (bytes: number): void => progress.add(bytes);
  const umask = keepsModes ? 0 : undefined;
  const onFailure = ({ name, errno, local: isLocal }: LeftEntry): void =>
    report.skip(isLocal === true ? join(local, name) : `:${posix.join(remote, name)}`, errnoWords(errno));
  const stream = (): Promise<Unpacked> => {
    const how = { failFast, exclude, umask, onBytes, onFailure, crossMounts: !oneFileSystem };
    const more = { ...owners, hardLinks, followLinks, keepExisting };
    return client.downloadFolder(nameOf(remote), nameOf(local), { ...how, ...more, onReconnect: onReconnect(parts) });
  };
  const byEntry = (): Promise<Unpacked> => {
    const fail = (name: Buffer, error: EntryError): void =>
      onFailure({
        name: name.toString(),
        rawName: name,
        errno: error.errno,
        ...(error instanceof UnpackError && { local: true }),
      });
    const tree = guestTree({ client, report, onBytes, options }, remote);
    if (followLinks)
      throw new CliError(`-L cannot be used with :${remote}; name the targets of its links and copy those`);
    const kept = keepExisting ? new Set<string>() : undefined;
    return unpack(nameOf(local), tree, {
      ...owners,
      umask,
      keepExisting: kept,
      onFailure: failFast ? undefined : fail,
    });
  };
  // Of what the kernel generates, only the reading tells the size: one stream cannot carry it.
  const copied = isGenerated(`${remote}/`) ? byEntry() : stream().catch(ifTooOld<Unpacked>(byEntry));
  const { files, bytes } = await copied.catch(ifPartial(parts));
  report.files += files;
  report.bytes += bytes;
}
