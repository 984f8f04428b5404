import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import { constants, gzip, zstdCompress } from "node:zlib";

import { filesBelow } from "./inspect.ts";
import { runTool } from "./toolchain.ts";

/** Higher levels take many times as long for one percent. */
const ZSTD_LEVEL = 10;

/** The time of making, wherever one has to be given: building twice gives the same bytes. */
export const RELEASE_TIME = "1970-01-01T00:00:00Z";

/** In hexadecimal digits. */
export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

const zstd = promisify(zstdCompress);

/**
 * Writes SHA256SUMS into a folder, for `sha256sum -c`, over everything in it or over the files below some of its
 * entries.
 */
export function writeChecksums(folder: string, entries: readonly string[] = [""]): void {
  const files = entries
    .map((entry) => join(folder, entry))
    .flatMap((path) => (statSync(path).isDirectory() ? filesBelow(path) : [path]));
  const lines = files.map((file) => `${sha256(readFileSync(file))}  ${relative(folder, file)}\n`);
  writeFileSync(join(folder, "SHA256SUMS"), lines.join(""));
}

/**
 * A folder as a tar archive, below `name` or without a name above its entries. It holds nothing of the time, the user,
 * the umask or the order of the build, so that the same files give the same bytes.
 */
export function neutralTar(folder: string, name?: string): Buffer {
  const neutral = ["--sort=name", "--format=ustar", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
  const what =
    name === undefined
      ? ["-C", folder, ...readdirSync(folder).toSorted()]
      : [`--transform=s,^${basename(folder)},${name},`, "-C", dirname(folder), basename(folder)];
  const tar = `${folder}.tar`;
  try {
    runTool("tar", [...neutral, "--mode=u+rw,go=rX", "-cf", tar, ...what]);
    return readFileSync(tar);
  } finally {
    rmSync(tar, { force: true });
  }
}

/**
 * Packs a folder as `name` into two archives beside it. A substrate makes volumes from the .tar.gz; the .tar.zst is a
 * sixth smaller and unpacks several times as fast. Returns their paths.
 */
export async function pack(folder: string, name: string): Promise<readonly string[]> {
  // Compressed as a whole: in pieces it takes a quarter more CPU time.
  const compressors = {
    zst: (bytes: Buffer) => zstd(bytes, { params: { [constants.ZSTD_c_compressionLevel]: ZSTD_LEVEL } }),
    gz: (bytes: Buffer) => promisify(gzip)(bytes),
  };
  const bytes = neutralTar(folder, name);
  return Promise.all(
    Object.entries(compressors).map(async ([suffix, compress]) => {
      const output = join(dirname(folder), `${name}.tar.${suffix}`);
      writeFileSync(output, await compress(bytes));
      return output;
    }),
  );
}
