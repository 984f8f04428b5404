import { closeSync } from "node:fs";
import { release } from "node:os";

import type { EntropyFacts } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import { confirmsReseed } from "./confirms-reseed.ts";
import { openRandomDevice } from "./random-device.ts";

/** What restore duties could do with the kernel's generator, found out without touching it. */
export function entropyFacts(addon: Addon): EntropyFacts {
  const known = { confirmsReseed: confirmsReseed(release()) };
  const device = openRandomDevice(addon);
  if (typeof device === "string") return { ...known, open: device, credit: device };
  const answer = errnoName(addon.probeCreditEntropy(device));
  closeSync(device);
  return { ...known, open: undefined, credit: answer === "EINVAL" ? undefined : answer };
}
