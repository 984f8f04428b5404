import { release } from "node:os";
import type { Kernel } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import { confirmsReseed } from "./confirms-reseed.ts";
import { entropyDevice } from "./entropy-device.ts";
import { openRandomDevice } from "./random-device.ts";

/** The kernel that the agent runs on. */
export function guestKernel(addon: Addon): Kernel {
  return {
    openEntropyDevice: () => {
      const opened = openRandomDevice(addon);
      return typeof opened === "number" ? entropyDevice(addon, opened) : opened;
    },
    confirmsReseed: confirmsReseed(release()),
    stepClock: (wallNs) => {
      const result = addon.setRealtimeNs(wallNs);
      return result < 0 ? errnoName(result) : undefined;
    },
  };
}
