import { createHash } from "node:crypto";
import type { GuestPath, NewTreeEntry } from "../../client/index.ts";
import { sendableTimeNs, type TarEntry } from "../../tar/index.ts";
import { CliError } from "../cli/index.ts";
import type { CopyContext } from "./report.ts";

/** An entry to upload, from the local disk or from an archive. `sparse` is only set for files of the local disk. */
export type UploadEntry = TarEntry & { readonly sparse?: boolean };

/** Writes a file, with its mode, time and holes, and compares the checksums of both sides. */
export async function writeFile(
  { client, report, options }: CopyContext,
  path: GuestPath,
  { content, size, mode, uid, gid, mtimeSeconds, mtimeNs, sparse = false }: UploadEntry,
  parents: boolean,
  beneath = "",
): Promise<void> {
  const hash = createHash("sha256");
  async function* hashed(): AsyncGenerator<Uint8Array> {
    for await (const bytes of content) {
      hash.update(bytes);
      yield bytes;
    }
  }
  const attributes = { mode: mode & 0o7777, uid, gid, ...timeOf(mtimeSeconds, mtimeNs) };
  const file = { size, ...attributes, sparse, parents, beneath, flag: options.keepExisting ? "wx" : "w" } as const;
  const { sha256 } = await client.files.writeFile(path, hashed(), file);
  if (!hash.digest().equals(sha256))
    throw new CliError(`${path.toString()} arrived with a different checksum; copy it again`);
  report.files += 1;
  report.bytes += size;
}

const NS_PER_SECOND = 1_000_000_000n;

const NS_PER_MS = 1_000_000n;

/**
 * Converts a modification time to the form that the agent's calls expect. The result is exact if nanoseconds are known,
 * otherwise to the microsecond. A time that cannot be sent becomes the nearest time that can.
 */
export function timeOf(mtimeSeconds: number, mtimeNs?: bigint): { readonly mtime: Date; readonly mtimeNanos: number } {
  const timeNs = sendableTimeNs(mtimeNs ?? BigInt(Math.floor(mtimeSeconds * 1_000_000)) * 1_000n);
  const nanos = ((timeNs % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  return { mtime: new Date(Number((timeNs - (nanos % NS_PER_MS)) / NS_PER_MS)), mtimeNanos: Number(nanos) };
}

/** Converts an entry of an archive to one for `writeTree`. */
export function newTreeEntryOf(entry: UploadEntry & Pick<NewTreeEntry, "type">): NewTreeEntry {
  const { mtimeSeconds, mtimeNs, ...rest } = entry;
  return { ...rest, ...timeOf(mtimeSeconds, mtimeNs) };
}

/** Converts the entries of an archive to those for `writeTree`. */
export async function* newTreeEntries(
  entries: AsyncIterable<UploadEntry & Pick<NewTreeEntry, "type">>,
): AsyncGenerator<NewTreeEntry> {
  for await (const entry of entries) yield newTreeEntryOf(entry);
}
