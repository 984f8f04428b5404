import { posix } from "node:path";
import { Readable } from "node:stream";
import { messageOf } from "../../../shared/errors.ts";
import { FileType } from "../../../shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { type GuestClient, GuestError, type ListEntry, type PathAttributes } from "../../client/index.ts";
import { entryEnd, entryHead, TAR_END, type TarEntry, type TarType, whole, withRoot } from "../../tar/index.ts";
import { CliError, writeAll } from "../cli/index.ts";
import { isGenerated } from "./guest-paths.ts";
import { becameShorter } from "./local-tree.ts";
import { type CopyReport, NOT_COPIED } from "./report.ts";

const TYPES: ReadonlyMap<FileType, TarType> = new Map([
  [FileType.REGULAR, "file"],
  [FileType.DIRECTORY, "directory"],
  [FileType.SYMLINK, "symlink"],
]);
const NONE = Buffer.alloc(0);

interface TreeParts {
  readonly client: GuestClient;
  readonly report: Pick<CopyReport, "skip">;
  /** Called with the size of each piece of content. */
  readonly progress: (bytes: number) => void;
}

/** A folder of the sandbox as entries of an archive, itself first, nameless. Skips all but files, folders and links. */
async function* guestTree(parts: TreeParts, remote: string): AsyncGenerator<TarEntry> {
  const { client, report } = parts;
  const top = await client.statPath(remote);
  yield { ...headOf("directory", NONE, top), content: nothing() };
  for await (const entry of client.list(remote, { depth: Number.POSITIVE_INFINITY, crossMounts: true })) {
    const type = TYPES.get(entry.type);
    const path = posix.join(remote, entry.name);
    if (entry.errno !== undefined) report.skip(path, entry.errno);
    else if (type === undefined) report.skip(path, NOT_COPIED);
    if (type === undefined || entry.attributes === undefined) continue;
    const head = headOf(type, entry.rawName, entry.attributes);
    if (type === "file" && isGenerated(path)) yield* generated(parts, path, head);
    else yield { ...head, content: type === "file" ? contentOf(parts, remote, entry) : nothing() };
  }
}

/**
 * The same in one stream; entry by entry of an agent that has no such call, and of what the kernel generates, whose
 * size only the reading tells.
 */
export async function* wholeTree(parts: TreeParts, remote: string): AsyncGenerator<TarEntry> {
  const { client, report, progress } = parts;
  const tree = client.readTree(remote, { crossMounts: true });
  let isBegun = false;
  try {
    if (isGenerated(`${remote}/`)) {
      yield* guestTree(parts, remote);
      return;
    }
    const top = headOf("directory", NONE, await client.statPath(remote));
    const root = (): TarEntry => {
      isBegun = true;
      return { ...top, content: nothing() };
    };
    yield* withRoot(root, tree, { shorter: becameShorter, onBytes: progress });
  } catch (error) {
    if (isBegun || !(error instanceof GuestError) || error.status !== "UNIMPLEMENTED") throw error;
    yield* guestTree(parts, remote);
    return;
  }
  for (const { name, errno } of tree.result?.failures ?? [])
    report.skip(posix.join(remote, name), errno === "EOPNOTSUPP" ? NOT_COPIED : errno);
}

function headOf(type: TarType, name: Buffer, attributes: PathAttributes): Omit<TarEntry, "content"> {
  const { mode, size, mtime, mtimeNanos, linkTarget = NONE } = attributes;
  // A Date ends at the millisecond.
  const mtimeSeconds = Math.floor((mtime?.getTime() ?? 0) / 1_000) + mtimeNanos / 1e9;
  return { type, name, linkTarget, mode, size: type === "file" ? size : 0, mtimeSeconds };
}

async function* nothing(): AsyncGenerator<Buffer> {
  // No content.
}

/** More is no text of the kernel, but an image of its memory. */
const GENERATED_LIMIT_BYTES = 16 * 1024 * 1024;
/** Some of them, such as /proc/kmsg, wait for more for ever. */
const GENERATED_TIMEOUT_MS = 5_000;

/** A file that the kernel generates: only its content tells its size. Skips one that cannot be read. */
async function* generated(
  { client, report, progress }: TreeParts,
  path: string,
  head: Omit<TarEntry, "content">,
): AsyncGenerator<TarEntry> {
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  try {
    for await (const chunk of client.readFile(path, { timeoutMs: GENERATED_TIMEOUT_MS })) {
      sizeBytes += chunk.length;
      if (sizeBytes > GENERATED_LIMIT_BYTES) throw new CliError(`it has more than ${GENERATED_LIMIT_BYTES} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    report.skip(path, messageOf(error));
    return;
  }
  progress(sizeBytes);
  yield { ...head, size: sizeBytes, content: Readable.from(chunks.map((chunk) => Buffer.from(chunk))) };
}

/**
 * As many bytes as the file had when it was listed. Follows no link: the agent reads with its own rights, and the
 * folder's owner could put a link there in the meantime. Throws CliError for a file that has become shorter.
 */
async function* contentOf({ client, progress }: TreeParts, remote: string, entry: ListEntry): AsyncGenerator<Buffer> {
  const sizeBytes = entry.attributes?.size ?? 0;
  if (sizeBytes === 0) return;
  const content = client.readFile(entry.rawName, { length: sizeBytes, beneath: remote, noSymlinks: true }).readable();
  yield* whole<Buffer>(content, sizeBytes, Buffer.from(posix.join(remote, entry.name)), {
    shorter: becameShorter,
    onBytes: progress,
  });
}

/** Writes a path of the sandbox to a stream, as a tar archive that has it under its own name. */
export async function tarOut(parts: TreeParts, remote: string, output: NodeJS.WritableStream): Promise<void> {
  const top = Buffer.from(posix.basename(remote) || ".");
  const attributes = await parts.client.statPath(remote);
  const entries = attributes.type === FileType.DIRECTORY ? wholeTree(parts, remote) : single(parts, remote, attributes);
  for await (const { content, ...head } of entries) {
    const below = head.name.length === 0 ? [] : [Buffer.from("/"), head.name];
    const end = head.type === "directory" ? [Buffer.from("/")] : [];
    await writeAll(output, entryHead({ ...head, name: Buffer.concat([top, ...below, ...end]) }));
    for await (const bytes of content) await writeAll(output, bytes);
    await writeAll(output, entryEnd(head.size));
  }
  await writeAll(output, TAR_END);
}

/** A path that is no folder, under its own name. */
async function* single(parts: TreeParts, remote: string, attributes: PathAttributes): AsyncGenerator<TarEntry> {
  const type = TYPES.get(attributes.type);
  if (type === undefined) throw new CliError(`${remote} is ${NOT_COPIED}`);
  const rawName = Buffer.from(posix.basename(remote));
  const entry = { name: rawName.toString(), rawName, type: attributes.type, attributes, mountPoint: false };
  const head = headOf(type, NONE, attributes);
  if (isGenerated(remote)) yield* generated(parts, remote, head);
  else yield { ...head, content: contentOf(parts, posix.dirname(remote), entry) };
}
