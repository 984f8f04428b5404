import { posix } from "node:path";
import { GuestError, type LeftEntry, type FileAttributes } from "../../client/index.ts";
import {
  entryEnd,
  entryErrorOf,
  entryHead,
  EventLoopTurns,
  ownerIn,
  partsOf,
  TAR_END,
  TarError,
  type TarEntry,
  withoutExcluded,
  withRoot,
} from "../../tar/index.ts";
import { CliError, nameBytes, nameOf, writeAll } from "../cli/index.ts";
import { isGenerated } from "./guest-paths.ts";
import { archiveEntries, contentOf, generated, guestTree, headOf, tarTypeOf, type TreeParts } from "./guest-tree.ts";
import { type CopyContext, errnoWords, NOT_COPIED } from "./report.ts";

const NONE = Buffer.alloc(0);
const ZEROS = Buffer.alloc(64 * 1024);

/**
 * Writes a file or directory of the sandbox to a stream as a tar archive. In the archive, its name is the last part of
 * its path.
 */
export async function tarOut(context: CopyContext, remote: string, output: NodeJS.WritableStream): Promise<void> {
  const { client, report, options } = context;
  const parts: TreeParts = { client, report, options, onBytes: () => undefined };
  const top = nameBytes(posix.basename(remote) || ".");
  const attributes = await client.files.stat(nameOf(remote));
  const isDirectory = attributes.type === "directory";
  const names = new ArchiveNames();
  // Return to the event loop from time to time, so that signals are handled. If the output is a file, writes are
  // synchronous, and thousands of buffered entries could be written without a turn of the event loop.
  const turns = new EventLoopTurns();
  for await (const entry of isDirectory ? wholeTree(parts, remote) : single(parts, remote, attributes)) {
    if (turns.isDue) await turns.next();
    names.check(entry);
    const below = entry.name.length === 0 ? [] : [Buffer.from("/"), entry.name];
    const end = entry.type === "directory" ? [Buffer.from("/")] : [];
    const name = Buffer.concat([top, ...below, ...end]);
    const linkTarget =
      entry.type === "hard-link" ? Buffer.concat([top, Buffer.from("/"), entry.linkTarget]) : entry.linkTarget;
    // An archive always records owners; the program that unpacks it decides whether to use them.
    const { uid, gid } = ownerIn({ ...options.owners, keepOwners: true }, entry);
    await writeAll(output, entryHead({ ...entry, name, linkTarget, uid, gid }));
    await writeContent(entry, output, turns, (error) =>
      report.skip(
        `:${posix.join(remote, entry.name.toString())}`,
        `${error}; the rest of the file is filled with zeros`,
      ),
    );
    await writeAll(output, entryEnd(entry.size));
  }
  await writeAll(output, TAR_END);
}

/**
 * Writes exactly as many bytes as the entry's header declares, because the next header must follow them. Missing bytes
 * are replaced by zeros, as in tar(1).
 */
async function writeContent(
  { content, size }: TarEntry,
  output: NodeJS.WritableStream,
  turns: EventLoopTurns,
  fail: (why: string) => void,
): Promise<void> {
  let leftBytes = size;
  try {
    for await (const bytes of content) {
      leftBytes -= bytes.length;
      if (turns.isDue) await turns.next();
      await writeAll(output, bytes);
    }
  } catch (error) {
    const failed = entryErrorOf(error);
    if (failed === undefined) throw error;
    fail(errnoWords(failed.errno));
    for (; leftBytes > 0; leftBytes -= ZEROS.length) {
      if (turns.isDue) await turns.next();
      await writeAll(output, ZEROS.subarray(0, Math.min(leftBytes, ZEROS.length)));
    }
  }
}

/** Limit on the memory for the names of an archive's symlinks, in bytes. */
const LINKS_LIMIT_BYTES = 64 * 1024 * 1024;

/** Checks the names in an archive, because the program that unpacks it may follow symlinks. */
class ArchiveNames {
  readonly #links = new Set<string>();
  #linkBytes = 0;

  /**
   * Throws TarError if a name or the target of a hard link passes through a symlink of the archive, because such a path
   * may lead out of the directory into which the archive is unpacked.
   */
  check({ type, name, linkTarget }: TarEntry): void {
    const parts = partsOf(name);
    if (type === "hard-link") this.#checkAbove([...partsOf(linkTarget), ""], linkTarget);
    if (this.#links.size > 0) this.#checkAbove(parts, name);
    if (type !== "symlink") return;
    this.#linkBytes += name.length;
    if (this.#linkBytes > LINKS_LIMIT_BYTES)
      throw new TarError("the directory has too many symbolic links for an archive");
    this.#links.add(parts.join("/"));
  }

  #checkAbove(parts: readonly string[], name: Buffer): void {
    for (let depth = 1; depth < parts.length; depth++)
      if (this.#links.has(parts.slice(0, depth).join("/")))
        throw new TarError(
          `the sandbox's answer has the path ${JSON.stringify(name.toString())}, which leads through a symbolic link`,
        );
  }
}

/**
 * Yields a directory of the sandbox and then everything in it. Reads all of it in one stream, or entry by entry if a
 * stream is not possible.
 */
async function* wholeTree(parts: TreeParts, remote: string): AsyncGenerator<TarEntry> {
  const { client, report, onBytes, options } = parts;
  const { exclude, followLinks, oneFileSystem } = options;
  // With exclusions, the archive must have no hard links, because their first name may be excluded. With
  // `oneFileSystem`, the stream of a tree always has hard links.
  if (isGenerated(`${remote}/`) || (oneFileSystem && exclude.length > 0)) {
    yield* guestTree(parts, remote);
    return;
  }
  const onFailure = ({ name, errno }: LeftEntry): void =>
    report.skip(`:${posix.join(remote, name)}`, errnoWords(errno));
  const crossMounts = !oneFileSystem;
  const hardLinks = exclude.length === 0;
  const tree = client.files.readTree(nameOf(remote), { crossMounts, hardLinks, followLinks, onFailure });
  let isBegun = false;
  try {
    const top = headOf("directory", NONE, await client.files.stat(nameOf(remote)));
    const root = (): TarEntry => {
      isBegun = true;
      return { ...top, content: nothing() };
    };
    yield* withoutExcluded<TarEntry>(withRoot<TarEntry>(root, archiveEntries(tree), onBytes), exclude);
  } catch (error) {
    if (isBegun || !(error instanceof GuestError) || error.status !== "UNIMPLEMENTED") throw error;
    yield* guestTree(parts, remote);
    return;
  }
  report.skipUnnamed(tree.unnamed);
}

async function* nothing(): AsyncGenerator<Buffer> {
  // No content.
}

/**
 * Yields the content of the archive for a path that is not a directory: a single entry with the path's last component
 * as its name.
 */
async function* single(parts: TreeParts, remote: string, attributes: FileAttributes): AsyncGenerator<TarEntry> {
  const type = tarTypeOf(attributes.type);
  if (type === undefined) throw new CliError(`${remote} is ${NOT_COPIED}`);
  const rawName = nameBytes(posix.basename(remote));
  const head = headOf(type, NONE, attributes);
  if (isGenerated(remote)) yield* generated(parts, `:${remote}`, head);
  else
    yield {
      ...head,
      content: contentOf(parts, posix.dirname(remote), { rawName, name: rawName.toString(), size: attributes.size }),
    };
}
