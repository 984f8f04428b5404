import { createHash } from "node:crypto";
import { createReadStream, createWriteStream, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { pipeline } from "node:stream/promises";
import { constants, createZstdCompress } from "node:zlib";

import { filesBelow } from "./inspect.ts";
import { runTool } from "./toolchain.ts";

/** Where larger ones take many times as long for one percent. */
const ZSTD_LEVEL = 10;

/** Writes SHA256SUMS, for `sha256sum -c`, over everything in a folder. */
export function writeChecksums(folder: string): void {
  const lines = filesBelow(folder).map((file) => {
    const digest = createHash("sha256").update(readFileSync(file)).digest("hex");
    return `${digest}  ${relative(folder, file)}\n`;
  });
  writeFileSync(join(folder, "SHA256SUMS"), lines.join(""), { mode: 0o644 });
}

/**
 * Packs a folder as `name` into a .tar.zst: a sixth smaller than .tar.gz, and unpacked several times as fast. Holds
 * nothing of the time, the user or the order of the build, so that the same files give the same bytes.
 */
export async function pack(folder: string, name: string, output: string): Promise<void> {
  const tar = `${output}.tar`;
  const neutral = ["--sort=name", "--format=ustar", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
  const rename = `--transform=s,^${basename(folder)},${name},`;
  try {
    runTool("tar", [...neutral, "--mode=go-w", rename, "-cf", tar, "-C", dirname(folder), basename(folder)]);
    const compress = createZstdCompress({ params: { [constants.ZSTD_c_compressionLevel]: ZSTD_LEVEL } });
    await pipeline(createReadStream(tar), compress, createWriteStream(output));
  } finally {
    rmSync(tar, { force: true });
  }
}
