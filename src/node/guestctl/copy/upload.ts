import { lstat, readlink } from "node:fs/promises";
import { join, posix } from "node:path";
import { Readable } from "node:stream";
import { type LeftEntry, type NewTreeEntry, type WriteTreeOptions } from "../../client/index.ts";
import {
  counted,
  entryErrorOf,
  exclusion,
  type LocalReading,
  ownerIn,
  readLocal,
  readTar,
  type ReceivedEntry,
  secondsNotBefore,
} from "../../tar/index.ts";
import { CliError, isRawName, nameBytes, nameOf } from "../cli/index.ts";
import { decompressed } from "./decompressed.ts";
import { existingDirectory, statIfThere } from "./guest-paths.ts";
import { GuestTarget, ifTooOld } from "./older-agents.ts";
import { type CopyContext, type CopyParts, type CopyReport, errnoWords, NOT_COPIED } from "./report.ts";
import { onReconnect } from "./resumed.ts";
import { ifPartial } from "./source-failure.ts";
import { newTreeEntries, newTreeEntryOf, timeOf, type UploadEntry, writeFile } from "./write-file.ts";

/**
 * How many files are written to an older agent concurrently. Concurrency helps, because each call waits for the
 * sandbox's disk.
 */
const AT_ONCE = 16;
const NONE = Buffer.alloc(0);
const HOW = { parents: true, overwrite: true, specialBits: true } as const;

/**
 * Copies a file into the sandbox, with its mode, time and holes, and compares the checksums of both sides.
 *
 * @param directory the directory that the user named, if the file is below it; the agent then follows no symlink that
 *   leads out of it, because the workload may have created such symlinks
 */
export async function uploadFile(parts: CopyParts, local: string, remote: string, directory?: string): Promise<void> {
  const path = nameOf(directory === undefined ? remote : posix.relative(directory, remote));
  using reading = readLocal(nameOf(local), { owners: parts.options.owners, followLinks: true });
  const file = await fileOf(reading, parts);
  const write = (): Promise<void> => writeFile(parts, path, file, parts.options.makesParents, directory);
  // A sparse file is sent as a tree of one entry, because the call for a single file would send holes as zeros. A file
  // below a directory whose name is not UTF-8 is also sent as a tree, because the call for a single file accepts only
  // names in UTF-8.
  await (file.type === "file" && (file.sparse === true || (directory !== undefined && isRawName(directory)))
    ? uploadAlone(parts, { ...file, type: file.type }, remote).catch(ifTooOld(write))
    : write());
}

/** Returns the entry of a single local file. Rejects if the file cannot be read. */
async function fileOf(reading: LocalReading, { progress }: CopyParts): Promise<UploadEntry> {
  const { value } = await reading.next();
  if (value !== undefined && "entry" in value) return counted(value.entry, (bytes) => progress.add(bytes));
  throw value !== undefined && "failure" in value
    ? value.failure.error
    : new Error("the thread that reads local files has sent no entry");
}

/** Copies a symlink into the sandbox, as a link. */
export async function uploadLink(context: CopyContext, local: string, remote: string): Promise<void> {
  const path = nameBytes(local);
  const [stats, linkTarget] = await Promise.all([lstat(path, { bigint: true }), readlink(path, "buffer")]);
  const { mtimeNs } = stats;
  const times = { mtimeNs, mtimeSeconds: secondsNotBefore(mtimeNs) };
  const owner = ownerIn(context.options.owners, stats);
  const head = { type: "symlink", name: NONE, linkTarget, mode: Number(stats.mode), size: 0 } as const;
  await uploadAlone(context, { ...head, ...times, ...owner, content: Readable.from([]) }, remote);
}

/** Writes a single entry with the call that writes trees. */
async function uploadAlone(
  { client, report, options }: CopyContext,
  entry: UploadEntry & Pick<NewTreeEntry, "type">,
  remote: string,
): Promise<void> {
  const [above, name] = [nameOf(posix.dirname(remote)), nameBytes(posix.basename(remote))];
  const named = { ...entry, content: entry.content, name };
  const { failures } = await client.files.writeTree(above, [newTreeEntryOf(named)], {
    ...HOW,
    overwrite: !options.keepExisting,
    parents: options.makesParents,
  });
  const [failed] = failures;
  if (failed !== undefined) throw new CliError(`cannot write :${remote}: ${errnoWords(failed.errno)}`);
  report.files += 1;
  report.bytes += entry.size;
}

/**
 * Copies a directory into the sandbox, with modes, times and links. The agent writes the files, so the image need not
 * contain tar.
 */
export async function uploadTree(parts: CopyParts, local: string, remote: string, directory?: string): Promise<void> {
  const { client, report, options, progress } = parts;
  const above = posix.dirname(remote);
  const beneath = directory ?? (await existingDirectory(client, above));
  if (!options.makesParents && directory === undefined && beneath !== above)
    throw new CliError(`cannot create ${remote} in the sandbox: its parent directory does not exist; add --parents`);
  const top = posix.relative(beneath, remote);
  const { failFast, exclude, oneFileSystem, owners, hardLinks, followLinks, keepExisting } = options;
  const onFailure = ({ name, errno, local: isLocal }: LeftEntry): void =>
    report.skip(isLocal === true ? join(local, name) : `:${posix.join(remote, name)}`, errnoWords(errno));
  const what = { exclude, oneFileSystem, ...owners, hardLinks, followLinks, keepExisting };
  const how = { ...HOW, ...what, failFast, onFailure, onReconnect: onReconnect(parts) };
  const onBytes = (bytes: number): void => progress.add(bytes);
  const stream = client.files.upload(nameOf(local), nameOf(top === "" ? beneath : top), {
    ...how,
    ...(top !== "" && { beneath: nameOf(beneath) }),
    onBytes,
  });
  const byEntry = async (): Promise<{ readonly files: number; readonly bytes: number }> => {
    const fail = (name: Buffer, error: unknown, why: string): void => {
      const source = entryErrorOf(error);
      if (source === undefined) report.skip(`:${posix.join(remote, name.toString())}`, why);
      else report.skip(join(local, name.toString()), errnoWords(source.errno));
    };
    await new GuestTarget(parts, beneath, nameBytes(top), fail).fill(localEntries(parts, local), AT_ONCE);
    return { files: 0, bytes: 0 };
  };
  const { files, bytes } = await stream.catch(ifTooOld(byEntry)).catch(ifPartial(parts));
  report.files += files;
  report.bytes += bytes;
}

/** Unpacks a tar archive into a directory of the sandbox. */
export async function tarIn(context: CopyContext, remote: string, input: AsyncIterable<Uint8Array>): Promise<void> {
  const { client, options } = context;
  if ((await statIfThere(client, remote)) === undefined)
    throw new CliError(`there is no directory ${remote} in the sandbox; create it: guestctl mkdir -p ${remote}`);
  let root: UploadEntry | undefined;
  const onRoot = (entry: UploadEntry): void => {
    root = entry;
  };
  let reported = 0;
  const sent = new SentFiles(context.report);
  const onFailure = ({ name, rawName, errno }: LeftEntry): void => {
    reported += 1;
    sent.uncount(rawName);
    if (options.keepExisting && errno === "EEXIST") return;
    context.report.skip(`:${posix.join(remote, name)}`, errnoWords(errno));
  };
  const overwrite = !options.keepExisting;
  const how: WriteTreeOptions = { ...HOW, overwrite, failFast: options.failFast, onFailure };
  const fail = (name: Buffer, _: unknown, why: string): void =>
    context.report.skip(`:${posix.join(remote, name.toString())}`, why);
  // Write one file at a time, because the content of an entry is in the stream and must be read before the next entry.
  const older = (): Promise<void> =>
    new GuestTarget(context, remote, NONE, fail).fill(
      archived(input, context, () => undefined),
      1,
    );
  const entries = newTreeEntries(sent.counted(archived(input, context, onRoot)));
  const stream = client.files.writeTree(nameOf(remote), entries, how);
  await stream.then(({ failed }) => context.report.skipUnnamed(failed - reported), ifTooOld(older));
  if (root === undefined) return;
  const { mode, uid, gid, mtimeSeconds, mtimeNs } = root;
  const attributes = { mode: mode & 0o7777, uid, gid, ...timeOf(mtimeSeconds, mtimeNs) };
  await client.files.setAttributes(".", attributes, { beneath: nameOf(remote) });
}

/** The entries of an archive, with normalized paths: without leading "/" and "./", and without trailing slashes. */
async function* archived(
  input: AsyncIterable<Uint8Array>,
  context: CopyContext,
  onRoot: (entry: UploadEntry) => void,
): AsyncGenerator<UploadEntry & Pick<NewTreeEntry, "type">> {
  const isExcluded = exclusion(context.options.exclude);
  for await (const given of readTar(decompressed(input))) {
    const linkTarget = given.type === "hard-link" ? plainPath(given.linkTarget) : given.linkTarget;
    const entry = { ...given, ...ownerIn(context.options.owners, given), name: plainPath(given.name), linkTarget };
    if (isExcluded?.(entry.name) === true) continue;
    if (entry.name.length > 0 && isTaken(context, entry)) yield entry;
    else if (entry.name.length === 0) {
      // An entry without a name describes the destination itself. If it is a directory, the destination gets its
      // attributes. An entry of any other type would replace the destination, so it is skipped.
      if (entry.type === "directory") onRoot(entry);
      else
        context.report.skip(
          JSON.stringify(given.name.toString()),
          "this entry would replace the destination, which is a directory, by something else",
        );
    }
  }
}

function plainPath(path: Buffer): Buffer {
  const names = path.toString("latin1").split("/");
  return Buffer.from(names.filter((name) => name !== "" && name !== ".").join("/"), "latin1");
}

/** Returns whether the entry can be copied. If it cannot, reports that it is skipped. */
function isTaken({ report }: CopyContext, entry: UploadEntry): entry is UploadEntry & Pick<NewTreeEntry, "type"> {
  const { type, name } = entry;
  if (type === "directory" || type === "symlink" || type === "file" || type === "hard-link") return true;
  report.skip(name.toString(), NOT_COPIED);
  return false;
}

/**
 * Counts the files of an archive while they are sent in one call. It is not used for older agents: each file is then
 * written by a call of its own, and is counted after this call.
 */
class SentFiles {
  readonly #report: CopyReport;
  /** Sizes of the files, in bytes. The keys are names decoded as latin1, which keeps every byte. */
  readonly #sizes = new Map<string, number>();

  constructor(report: CopyReport) {
    this.#report = report;
  }

  async *counted<Entry extends UploadEntry>(entries: AsyncIterable<Entry>): AsyncGenerator<Entry> {
    for await (const entry of entries) {
      if (entry.type === "file" || entry.type === "hard-link") this.#count(entry);
      yield entry;
    }
  }

  /** Subtracts a file from the counts, because the agent has not written the file. */
  uncount(name: Buffer): void {
    const sizeBytes = this.#sizes.get(name.toString("latin1"));
    if (sizeBytes === undefined) return;
    this.#report.files -= 1;
    this.#report.bytes -= sizeBytes;
  }

  #count({ type, name, size }: UploadEntry): void {
    const sizeBytes = type === "file" ? size : 0;
    this.#sizes.set(name.toString("latin1"), sizeBytes);
    this.#report.files += 1;
    this.#report.bytes += sizeBytes;
  }
}

/** The entries of a local directory, for an older agent. */
async function* localEntries({ report, options, progress }: CopyParts, local: string): AsyncGenerator<UploadEntry> {
  const { exclude, oneFileSystem, followLinks, owners } = options;
  const isLeftOut = ({ failure: { name, error } }: Extract<ReceivedEntry, { failure: unknown }>): void => {
    const failed = entryErrorOf(error);
    if (failed === undefined || options.failFast) throw error;
    report.skip(join(local, name.toString()), errnoWords(failed.errno));
  };
  using reading = readLocal(nameOf(local), { owners, exclude, oneFileSystem, followLinks });
  for (let next = await reading.next(); next.done !== true; next = await reading.next())
    if ("failure" in next.value) isLeftOut(next.value);
    else if ("entry" in next.value) yield counted(next.value.entry, (bytes) => progress.add(bytes));
}
