import { release } from "node:os";
import type { Kernel, ProcessRandomness } from "../domain/index.ts";
import { type Addon, errnoIn } from "../native/index.ts";
import { confirmsReseed, entropyDevice, openRandomDevice } from "./random-device.ts";

export function guestKernel(addon: Addon): Kernel {
  return {
    openEntropyDevice: () => {
      const opened = openRandomDevice(addon);
      return typeof opened === "number" ? entropyDevice(addon, opened) : opened;
    },
    confirmsReseed: confirmsReseed(release()),
    stepClock: (wallNs) => errnoIn(addon.setRealtimeNs(wallNs)),
  };
}

/** Number of UUIDs that Node caches (kBatchSize in lib/internal/crypto/random.js). */
const CACHED_UUIDS = 128;
/** Number of integers that Node caches for randomInt: its cache has 6 KiB, and an integer takes 6 bytes (random.js). */
const CACHED_INTEGERS = 1024;
const ANY_RANGE = 2;

/** Takes all UUIDs that Node has cached for randomUUID(). Otherwise clones of a snapshot would get the same ones. */
function emptyUuidCache(): void {
  const { randomUUID } = process.getBuiltinModule("node:crypto");
  for (let drawn = 0; drawn < CACHED_UUIDS; drawn++) randomUUID();
}

/**
 * Calls randomInt() once for each integer that Node may have cached. Otherwise all clones of a snapshot would get the
 * same integers. Then calls it once more, because Node refills an empty cache only at the next call.
 */
function emptyIntegerCache(): void {
  const { randomInt } = process.getBuiltinModule("node:crypto");
  for (let drawn = 0; drawn <= CACHED_INTEGERS; drawn++) randomInt(ANY_RANGE);
}

/** Reseeds OpenSSL's generators, and then empties Node's caches of random numbers, which refill from OpenSSL. */
export function processRandomness(addon: Addon): ProcessRandomness {
  return {
    reseed: (seed) => {
      const result = addon.reseedOpenssl(seed);
      emptyUuidCache();
      emptyIntegerCache();
      if (result === 1) return undefined;
      return result === 0 ? "failed" : "no_symbols";
    },
  };
}
