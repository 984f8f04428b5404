import { closeSync } from "node:fs";
import type { EntropyDevice, Errno } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";

function failure(result: number): Errno | undefined {
  return result < 0 ? errnoName(result) : undefined;
}

/** The kernel's generator behind an open random device. Owns the descriptor. */
export function entropyDevice(addon: Addon, fd: number): EntropyDevice {
  return {
    credit: (block) => failure(addon.creditEntropy(fd, block)),
    mix: (bytes) => {
      const count = addon.write(fd, bytes, 0, bytes.length);
      return count < 0 ? errnoName(count) : count;
    },
    reseed: () => failure(addon.reseedCrng(fd)),
    close: () => closeSync(fd),
  };
}
