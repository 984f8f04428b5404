import { randomBytes } from "node:crypto";
import { constants, rmSync } from "node:fs";
import { link as giveName, lstat, open, rename, rm } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";
import { Readable } from "node:stream";
import { SparseFile } from "../../../shared/sparse-file.ts";
import type { LeftEntry, FileAttributes } from "../../client/index.ts";
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
import { cleanUpAtSignal } from "../ending/index.ts";
import { isGenerated } from "./guest-paths.ts";
import { guestTree } from "./guest-tree.ts";
import { CliError, nameBytes, nameOf } from "../cli/index.ts";
import { localFailure, locally } from "./local-paths.ts";
import { ifTooOld } from "./older-agents.ts";
import { type CopyContext, type CopyParts, errnoWords } from "./report.ts";
import { onReconnect } from "./resumed.ts";
import { ifPartial } from "./source-failure.ts";

const NONE = Buffer.alloc(0);
/** An id that leaves the owner or group unchanged (chown(2)). */
const UNCHANGED = 2 ** 32 - 1;
const NS_PER_SECOND = 1_000_000_000n;

/**
 * Copies a file out of the sandbox. The file appears under its name once it is complete, with its mode and time. If the
 * destination exists and is not a regular file (a device, a FIFO, a symlink), the content is written into it, as in
 * cp(1).
 */
export async function downloadFile(
  parts: CopyParts,
  remote: string,
  stat: FileAttributes,
  local: string,
): Promise<void> {
  const there = await lstat(nameOf(local)).catch(() => undefined);
  await (there === undefined || there.isFile()
    ? replaceFile(parts, remote, stat, local)
    : writeInto(parts, remote, stat, local));
}

async function replaceFile(parts: CopyParts, remote: string, stat: FileAttributes, local: string): Promise<void> {
  const { host } = parts;
  const temporary = nameOf(join(dirname(local), `.guestctl-${randomBytes(8).toString("hex")}.tmp`));
  const removeAtExit = (): void => rmSync(temporary, { force: true });
  host.once("exit", removeAtExit);
  const remove = async (): Promise<void> => {
    // Remove the file asynchronously, because a synchronous call would block the signal handler while the file system
    // does not answer.
    host.off("exit", removeAtExit);
    await rm(temporary, { force: true });
  };
  const opening = open(temporary, "wx", 0o600);
  // Register the clean-up before the file exists, because a signal may arrive while the file is being created.
  using _ = cleanUpAtSignal(() => opening.then(remove, remove));
  const file = await locally(local, opening).catch((error: unknown) => {
    host.off("exit", removeAtExit);
    throw error;
  });
  try {
    const content = new SparseFile(file);
    const finish = await receive(parts, remote, stat, content);
    const { uid, gid } = ownerIn(parts.options.owners, stat);
    if (uid !== undefined || gid !== undefined) await file.chown(uid ?? UNCHANGED, gid ?? UNCHANGED);
    await file.chmod(modeHere(parts, stat.mode));
    const modified = modifiedSeconds(stat);
    // Pass the times as text, because Node treats a negative number as the current time.
    if (modified !== undefined) await file.utimes(String(modified), String(modified));
    if (parts.options.keepExisting) await giveName(temporary, nameOf(local));
    else await rename(temporary, nameOf(local));
    finish();
  } catch (error) {
    throw error instanceof Error && "syscall" in error ? localFailure(local, error) : error;
  } finally {
    await remove();
    await file.close();
  }
}

function modifiedSeconds({ mtime, mtimeNanos }: FileAttributes): number | undefined {
  if (mtime === undefined) return undefined;
  return secondsNotBefore(BigInt(Math.floor(mtime.getTime() / 1_000)) * NS_PER_SECOND + BigInt(mtimeNanos));
}

/** Applies the umask unless -a or -p is given, as cp(1), scp(1) and tar(1) do. */
function modeHere({ options }: CopyParts, mode: number): number {
  return mode & MODE_MASK & ~(options.keepsModes ? 0 : currentUmask());
}

/** Opens without O_CREAT, so that a dangling symlink is refused, as in cp(1). */
async function writeInto(parts: CopyParts, remote: string, stat: FileAttributes, local: string): Promise<void> {
  const file = await locally(local, open(nameOf(local), constants.O_WRONLY | constants.O_TRUNC));
  try {
    const finish = await receive(parts, remote, stat, {
      write: (bytes) => locally(local, file.appendFile(bytes)),
    });
    finish();
  } finally {
    await file.close();
  }
}

/** Where the content of a file is written. A sink without `skip` receives zeros for holes. */
interface Sink {
  write(bytes: Uint8Array): Promise<void>;
  skip?(bytes: number): Promise<void>;
}

/**
 * Reads a file up to the size in its attributes. If the size is 0, or the kernel generates the file, reads it to EOF.
 * Returns a function that adds the file to the report. Throws CliError if the size exceeds 2^53 - 1 bytes, and
 * EntryError if the file has become shorter.
 */
async function receive(
  { client, progress, report }: CopyParts,
  remote: string,
  { size }: FileAttributes,
  sink: Sink,
): Promise<() => void> {
  if (!Number.isSafeInteger(size))
    throw new CliError(`:${remote} is too large to copy (EFBIG): a copy has at most 2^53 - 1 bytes`);
  let received = 0;
  // A file that reports no size, or is generated by the kernel, must be read to EOF.
  const length = size === 0 || isGenerated(remote) ? undefined : size;
  const path = nameOf(remote);
  const { files } = client;
  for await (const piece of sink.skip === undefined
    ? files.createReadStream(path, { length })
    : files.readPieces(path, { length })) {
    if ("holeBytes" in piece) await sink.skip?.(piece.holeBytes);
    else await sink.write(piece);
    const bytes = "holeBytes" in piece ? piece.holeBytes : piece.length;
    received += bytes;
    progress.add(bytes);
  }
  if (length !== undefined && received < length) throw becameShorter(`:${remote}`);
  return () => {
    report.files += 1;
    report.bytes += received;
  };
}

/** Copies a symlink out of the sandbox, as a link. */
export async function downloadLink(
  { report, options }: CopyContext,
  link: FileAttributes,
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

/** Copies a directory out of the sandbox. The agent reads the directory, so the image need not contain tar. */
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
    return client.files.download(nameOf(remote), nameOf(local), { ...how, ...more, onReconnect: onReconnect(parts) });
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
    if (followLinks) throw new CliError(`-L cannot be used with :${remote}; copy the target of each link separately`);
    const kept = keepExisting ? new Set<string>() : undefined;
    return unpack(nameOf(local), tree, {
      ...owners,
      umask,
      keepExisting: kept,
      onFailure: failFast ? undefined : fail,
    });
  };
  // A tree stream requires the size of each file in advance. For files that the kernel generates, the size is only
  // known after reading them.
  const copied = isGenerated(`${remote}/`) ? byEntry() : stream().catch(ifTooOld<Unpacked>(byEntry));
  const { files, bytes } = await copied.catch(ifPartial(parts));
  report.files += files;
  report.bytes += bytes;
}
