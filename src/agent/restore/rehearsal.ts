import { ActivityClock, type Kernel, SILENT_LOG, Stamps, within } from "../domain/index.ts";
import type { Renewal } from "./credential-rotation.ts";
import { type RenewedParts, Restore, type RestoreParts } from "./restore.ts";
import { DutyQueue } from "./duty-queue.ts";

/** How long a snapshot waits for the file system of the credentials. */
const FILES_LIMIT_MS = 1_000;
/** Invalid arguments, which the addon rejects: empty entropy and a time before 1970. */
const NO_ENTROPY = new Uint8Array();
const BEFORE_1970_NS = -1n;
const NONE_REFUSED: Renewal = { credentials: true, environment: true };

/** Objects for the rehearsal that replace the agent's own. */
type Rehearsed<Connection> = Pick<RenewedParts<Connection>, "hooks" | "freeze">;

export interface RehearsalParts<Connection> {
  readonly duties: RestoreParts<Connection>;
  readonly own: Rehearsed<Connection>;
  /** Simulates a client's calls against a server in memory; `rehearsed` creates the duties for it. */
  readonly play: (
    rehearsed: (connections: RenewedParts<Connection>["connections"]) => Restore<Connection>,
  ) => Promise<void>;
}

/**
 * Runs, before a snapshot, the calls that a node makes after the restore, so that clones need not compile this code or
 * read it from disk. Changes nothing in the guest. Rejects as `play` does.
 */
export async function rehearse<Connection>({ duties, own, play }: RehearsalParts<Connection>): Promise<void> {
  await play((connections) =>
    rehearsedDuties({ ...duties, renew: { ...duties.renew, ...own, connections, readiness: undefined } }),
  );
  // As a POST_RESTORE hook does. Does not wait, because duties may be waiting for this snapshot.
  await duties.dutyQueue.settled(AbortSignal.abort()).catch(() => {});
}

/**
 * Duties for a rehearsal. They run the same code, but mix in no entropy, leave the clock and the user activity alone,
 * and log nothing. They do reread credential and spec files and put changed ones into force, but wait at most a second
 * for their file system.
 *
 * @param parts whose `renew` has objects of the rehearsal only, except for the files
 */
export function rehearsedDuties<Connection>(parts: RestoreParts<Connection>): Restore<Connection> {
  const { clock, kernel, renew } = parts;
  const { rotation } = renew;
  const stamps = new Stamps(clock);
  return new Restore({
    ...parts,
    kernel: withoutEffects(kernel),
    stamps,
    activity: new ActivityClock(stamps),
    log: SILENT_LOG,
    dutyQueue: new DutyQueue(),
    renew: {
      ...renew,
      rotation: {
        renew: async () => {
          await within(rotation.renew("snapshot"), FILES_LIMIT_MS);
          return NONE_REFUSED;
        },
        resetRateLimits: () => rotation.resetRateLimits(),
      },
    },
  });
}

function withoutEffects(kernel: Kernel): Kernel {
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
