import { constants } from "node:fs";
import { chmod, link, lstat, mkdir, open, symlink, unlink, utimes } from "node:fs/promises";
import { errnoOf } from "../../domain/index.ts";
import { TarError } from "../../tar/index.ts";
import { CliError } from "../errors.ts";
import { MODE_MASK, SparseFile } from "./download.ts";
import { startIfThere } from "./guest-command.ts";
import { localFailure } from "./local-tree.ts";
import type { CopyReport } from "./report.ts";
import { readTar, type TarEntry } from "./tar-read.ts";
import type { CopyParts } from "./upload.ts";

/** Copies a directory out of the sandbox, as a tar stream that the image's tar makes. */
export async function downloadTree(parts: CopyParts, remote: string, local: string): Promise<void> {
  const { client, progress, report } = parts;
  const tar = await startIfThere(client, ["tar", "-cf", "-", "."], { cwd: remote });
  if (tar === undefined) {
    throw new CliError(`${remote} is a directory, and the image has no tar to read it with; copy its files by name`);
  }
  async function* counted(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const bytes of stream) {
      progress.add(bytes.length);
      yield bytes;
    }
  }
  try {
    await new Extraction(local, report).extract(readTar(counted(tar.stdout as AsyncIterable<Uint8Array>)));
  } catch (error) {
    tar.cancel();
    // tar's error says more than that its stream broke off, unless the copy was cancelled.
    await tar.wait().catch((reason: unknown) => {
      if (reason instanceof CliError) throw reason;
    });
    throw error;
  }
  await tar.wait();
}

const FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const PRIVATE_DIRECTORY = 0o700;
const SLASH = Buffer.from("/");

/**
 * Unpacks an archive that a sandbox made, so that nothing outside the directory can be touched whatever the archive
 * says: names do not climb, and no link is ever followed. Owners and setuid bits are not taken over.
 */
export class Extraction {
  readonly #root: Buffer;
  readonly #report: CopyReport;
  /** Directories known to be no links, by their bytes in latin1. */
  readonly #real = new Set<string>();
  /** Modes for the end: a directory may take away the right to write into it. */
  readonly #modes: { readonly path: Buffer; readonly mode: number }[] = [];

  constructor(root: string, report: CopyReport) {
    this.#root = Buffer.from(root);
    this.#report = report;
  }

  async extract(entries: AsyncIterable<TarEntry>): Promise<void> {
    for await (const entry of entries) {
      const parts = partsOf(entry.name);
      try {
        await this.#unpack(entry, parts);
      } catch (error) {
        throw error instanceof CliError || error instanceof TarError
          ? error
          : localFailure(entry.name.toString(), error);
      }
    }
    for (const { path, mode } of this.#modes.toReversed()) await chmod(path, mode);
  }

  async #unpack(entry: TarEntry, parts: readonly Buffer[]): Promise<void> {
    if (entry.type === "directory") {
      const path = await this.#directory(parts);
      this.#modes.push({ path, mode: entry.mode & MODE_MASK });
      return;
    }
    if (parts.length === 0) throw refused(entry.name);
    await this.#directory(parts.slice(0, -1));
    const path = this.#pathOf(parts);
    switch (entry.type) {
      case "file":
        await makeRoom(path);
        await this.#file(entry, path);
        break;
      case "symlink":
        await makeRoom(path);
        await symlink(entry.linkName, path);
        break;
      case "hard-link": {
        const target = partsOf(entry.linkName);
        await this.#directory(target.slice(0, -1));
        await makeRoom(path);
        await link(this.#pathOf(target), path);
        break;
      }
      case "pax":
      case "gnu-name":
      case "gnu-link":
      case "other":
        this.#report.skip(entry.name.toString(), "neither a file, a directory nor a link");
    }
  }

  async #file(entry: TarEntry, path: Buffer): Promise<void> {
    const file = await open(path, FLAGS, 0o600);
    try {
      const content = new SparseFile(file);
      for await (const bytes of entry.content) await content.write(bytes);
      await content.end();
      await file.chmod(entry.mode & MODE_MASK);
    } finally {
      await file.close();
    }
    // As a date: Node reads a negative number as "now".
    const modified = new Date(entry.modifiedSeconds * 1000);
    await utimes(path, modified, modified);
    this.#report.files += 1;
    this.#report.bytes += entry.sizeBytes;
  }

  /** Makes sure that every part of a path is a directory and no link. */
  async #directory(parts: readonly Buffer[]): Promise<Buffer> {
    for (let depth = 0; depth <= parts.length; depth++) {
      const path = this.#pathOf(parts.slice(0, depth));
      const key = path.toString("latin1");
      if (this.#real.has(key)) continue;
      await mkdir(path, PRIVATE_DIRECTORY).catch((error: unknown) => {
        if (errnoOf(error) !== "EEXIST") throw error;
      });
      const isReal = depth === 0 || (await lstat(path)).isDirectory();
      if (!isReal) throw new CliError(`${path.toString()} is in the way: it is no directory`);
      this.#real.add(key);
    }
    return this.#pathOf(parts);
  }

  #pathOf(parts: readonly Buffer[]): Buffer {
    return Buffer.concat([this.#root, ...parts.flatMap((part) => [SLASH, part])]);
  }
}

/** Parts of an entry's name. Throws CliError for one that is absolute or climbs. */
function partsOf(name: Buffer): Buffer[] {
  const parts = name.toString("latin1").split("/");
  if (name[0] === SLASH[0] || parts.includes("..")) throw refused(name);
  return parts.filter((part) => part !== "" && part !== ".").map((part) => Buffer.from(part, "latin1"));
}

function refused(name: Buffer): CliError {
  return new CliError(`the sandbox sent the name ${JSON.stringify(name.toString())}, which leads out of the directory`);
}

/** Removes an entry with that name, unless it is a directory. */
async function makeRoom(path: Buffer): Promise<void> {
  await unlink(path).catch((error: unknown) => {
    if (errnoOf(error) !== "ENOENT") throw error;
  });
}
