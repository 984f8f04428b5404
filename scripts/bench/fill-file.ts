import { randomFillSync } from "node:crypto";
import { closeSync, openSync, writeSync } from "node:fs";

const BLOCK_BYTES = 1024 * 1024;

/** Makes a file of that size with real content. */
export function fillFile(path: string, sizeBytes: number): void {
  const block = randomFillSync(new Uint8Array(BLOCK_BYTES));
  const fd = openSync(path, "w");
  try {
    for (let left = sizeBytes; left > 0; left -= BLOCK_BYTES) writeSync(fd, block, 0, Math.min(left, BLOCK_BYTES));
  } finally {
    closeSync(fd);
  }
}
