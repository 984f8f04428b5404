import { closeSync, constants, openSync, readSync, statfsSync } from "node:fs";
import { EntryError } from "./entry-error.ts";

/** Magic numbers (statfs(2)) of file systems whose files the kernel generates and reports without a usable size. */
const GENERATED: ReadonlySet<number> = new Set([
  0x9fa0, // proc
  0x62656572, // sysfs
  0x64626720, // debugfs
  0x74726163, // tracefs
  0x73636673, // securityfs
  0x62656570, // configfs
  0x27e0eb, // cgroup
  0x63677270, // cgroup2
]);
/** Limit on the size of a generated file. A larger file is not text, but for example an image of the kernel's memory. */
const LIMIT_BYTES = 16 * 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;

/** Caches the result for each device number, so that statfs is called only once for each device. */
const isGeneratedDevice = new Map<bigint, boolean>();

/** Whether the kernel generates the file when it is read. Then its reported size is not the size of its content. */
export function isGenerated(path: Buffer, dev: bigint): boolean {
  // A file system on a disk has a major device number above 0. File systems that generate files have 0
  // (Documentation/admin-guide/devices.txt).
  if (majorOf(dev) !== 0n) return false;
  const known = isGeneratedDevice.get(dev);
  if (known !== undefined) return known;
  let found = false;
  try {
    found = GENERATED.has(statfsSync(path).type);
  } catch {
    return false;
  }
  isGeneratedDevice.set(dev, found);
  return found;
}

/** gnu_dev_major of glibc, for device numbers as Node reports them. */
function majorOf(dev: bigint): bigint {
  return ((dev >> 8n) & 0xfffn) | ((dev >> 32n) & ~0xfffn);
}

/**
 * Reads the content of a generated file. Throws EntryError if the content exceeds the limit. Throws the system call's
 * error if a read fails, for example EAGAIN for a file that waits for more data (/proc/kmsg).
 */
export function generatedContent(path: Buffer): Buffer {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const chunks: Buffer[] = [];
    let sizeBytes = 0;
    for (;;) {
      const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
      const count = readSync(fd, chunk, 0, chunk.length, null);
      if (count === 0) return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks);
      sizeBytes += count;
      if (sizeBytes > LIMIT_BYTES)
        throw new EntryError(
          "EFBIG",
          `${path.toString()} reports the size 0, but has more than ${LIMIT_BYTES} bytes; files that report no size, as in /proc, are copied only up to this limit`,
        );
      chunks.push(chunk.subarray(0, count));
    }
  } finally {
    closeSync(fd);
  }
}
