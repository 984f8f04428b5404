import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { GuestFile } from "./initramfs.ts";

const MEBIBYTE = 2 ** 20;
/** Debian has mke2fs in a folder of root's PATH only. */
const PATH = `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin`;
/** Room for ext4 itself, and on the instance's disk for all that its guest writes. */
const SPARE_BYTES = 192 * MEBIBYTE;

/** Writes the files as a disk with one ext4 file system, owned by root; sparse, so that free space costs nothing. */
export function writeDisk(output: string, files: readonly GuestFile[], spareBytes: number = SPARE_BYTES): void {
  const folder = mkdtempSync(`${output}-`);
  try {
    let sizeBytes = spareBytes;
    for (const { path, content, mode = 0o755 } of files) {
      const file = join(folder, path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, content);
      chmodSync(file, mode);
      sizeBytes += content.length;
    }
    chmodSync(folder, 0o755);
    writeFolderDisk(output, folder, sizeBytes);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Writes a folder as such a disk, with owners and modes as they are there. Throws if it does not fit. */
export function writeFolderDisk(output: string, folder: string, sizeBytes: number): void {
  const kibibytes = `${Math.ceil(sizeBytes / 1024)}k`;
  // An inode for every 4 KiB: images are made of small files.
  execFileSync(
    "mke2fs",
    ["-q", "-F", "-t", "ext4", "-i", "4096", "-E", "root_owner=0:0", "-d", folder, output, kibibytes],
    { env: { ...process.env, PATH }, stdio: ["ignore", "ignore", "pipe"] },
  );
}

/** Copies a disk that nobody writes to, with its holes. In tests without machines it is a folder. */
export function copyDisk(from: string, to: string): void {
  execFileSync("cp", ["-R", "--sparse=always", "--reflink=auto", from, to], { stdio: ["ignore", "ignore", "pipe"] });
}
