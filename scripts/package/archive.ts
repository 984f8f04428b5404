import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import { constants, gzip, zstdCompress } from "node:zlib";

import { filesBelow } from "./inspect.ts";
import { runTool } from "./toolchain.ts";

/** Compression level. Higher levels take many times as long and make the archive only one percent smaller. */
const ZSTD_LEVEL = 10;

/** The time in every place that requires one, so that two builds have the same bytes. */
export const RELEASE_TIME = "1970-01-01T00:00:00Z";

/** Digest in hexadecimal digits. */
export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

const zstd = promisify(zstdCompress);

/**
 * Writes SHA256SUMS into a directory, for `sha256sum -c`. Covers all files in it, or the files below some of its
 * entries.
 */
export function writeChecksums(directory: string, entries: readonly string[] = [""]): void {
  const files = entries
    .map((entry) => join(directory, entry))
    .flatMap((path) => (statSync(path).isDirectory() ? filesBelow(path) : [path]));
  const lines = files.map((file) => `${sha256(readFileSync(file))}  ${relative(directory, file)}\n`);
  writeFileSync(join(directory, "SHA256SUMS"), lines.join(""));
}

/**
 * A directory as a tar archive, below `name` if given. The archive does not depend on the time, the user, the umask or
 * the order of the build, so that the same files give the same bytes.
 */
export function neutralTar(directory: string, name?: string): Buffer {
  const neutral = ["--sort=name", "--format=ustar", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
  const what =
    name === undefined
      ? ["-C", directory, ...readdirSync(directory).toSorted()]
      : [`--transform=s,^${basename(directory)},${name},`, "-C", dirname(directory), basename(directory)];
  const tar = `${directory}.tar`;
  try {
    runTool("tar", [...neutral, "--mode=u+rw,go=rX", "-cf", tar, ...what]);
    return readFileSync(tar);
  } finally {
    rmSync(tar, { force: true });
  }
}

/** Removes the archives that builds of other versions have left in `directory`. */
export function removeOtherVersions(directory: string, version: string): void {
  for (const name of readdirSync(directory)) {
    const [, found = version] = /^guest-agent-(\d.*)-linux-/.exec(name) ?? [];
    if (found !== version) rmSync(join(directory, name));
  }
}

/**
 * Packs a directory into two archives beside it, called `name`. Substrates make volumes from the .tar.gz; the .tar.zst
 * is a sixth smaller and unpacks several times as fast. Returns their paths.
 */
export async function pack(directory: string, name: string): Promise<readonly string[]> {
  // The archive is compressed as a whole, because compressing it in pieces would take a quarter more CPU time.
  const compressors = {
    zst: (bytes: Buffer) => zstd(bytes, { params: { [constants.ZSTD_c_compressionLevel]: ZSTD_LEVEL } }),
    gz: (bytes: Buffer) => promisify(gzip)(bytes),
  };
  const bytes = neutralTar(directory, name);
  return Promise.all(
    Object.entries(compressors).map(async ([suffix, compress]) => {
      const output = join(dirname(directory), `${name}.tar.${suffix}`);
      writeFileSync(output, await compress(bytes));
      return output;
    }),
  );
}
