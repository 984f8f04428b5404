import { ActivityClock, type Kernel, SILENT_LOG, Stamps, within } from "../domain/index.ts";
import type { Renewal } from "./credential-rotation.ts";
import { Restore, type RestoreParts } from "./restore.ts";

/** How long a snapshot waits for the credentials' file system. */
const FILES_LIMIT_MS = 1_000;
/** What the addon refuses: no entropy at all, and a time before 1970. */
const NO_ENTROPY = new Uint8Array();
const BEFORE_1970_NS = -1n;
const NONE_REFUSED: Renewal = { credentials: true, environment: true };

/**
 * Duties for a rehearsal before a snapshot: then no clone compiles their code, or reads it from a disk. They run what
 * the real ones run, but mix no entropy in, leave the clock and the user's activity alone, and log nothing. They reread
 * credential and spec files, and put changed ones in force, and wait a second at most for their file system.
 *
 * @param parts whose `renew` is over objects that only the rehearsal knows, files excepted
 */
export function rehearsedDuties<Connection>(parts: RestoreParts<Connection>): Restore<Connection> {
  const { clock, kernel, renew } = parts;
  const stamps = new Stamps(clock);
  return new Restore({
    ...parts,
    kernel: harmless(kernel),
    stamps,
    activity: new ActivityClock(stamps),
    log: SILENT_LOG,
    renew: {
      ...renew,
      renewFiles: async () => {
        await within(renew.renewFiles("snapshot"), FILES_LIMIT_MS);
        return NONE_REFUSED;
      },
    },
  });
}

function harmless(kernel: Kernel): Kernel {
  return {
    confirmsReseed: kernel.confirmsReseed,
    openEntropyDevice: () => {
      const device = kernel.openEntropyDevice();
      if (typeof device === "string") return device;
      return { ...device, credit: () => void device.credit(NO_ENTROPY), mix: (bytes) => bytes.length };
    },
    stepClock: () => void kernel.stepClock(BEFORE_1970_NS),
  };
}
