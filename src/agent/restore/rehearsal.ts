import { ActivityClock, type Kernel, SILENT_LOG, Stamps, within } from "../domain/index.ts";
import type { Renewal } from "./credential-rotation.ts";
import { type RenewedParts, Restore, type RestoreParts } from "./restore.ts";
import { DutyQueue } from "./duty-queue.ts";

/** How long the rehearsal before a snapshot waits for the credential files, because their file system may hang. */
const FILES_LIMIT_MS = 1_000;
/**
 * A rehearsal must change nothing. Its restore steps therefore pass invalid arguments to the addon, which rejects them:
 * empty entropy, and a time before 1970.
 */
const NO_ENTROPY = new Uint8Array();
const BEFORE_1970_NS = -1n;
const NONE_REFUSED: Renewal = { credentials: true, environment: true };

/** The objects that the rehearsal uses instead of the agent's own, so that it changes nothing. */
type Rehearsed<Connection> = Pick<RenewedParts<Connection>, "hooks" | "freeze">;

export interface RehearsalParts<Connection> {
  readonly duties: RestoreParts<Connection>;
  readonly own: Rehearsed<Connection>;
  /**
   * Starts a server in memory, and makes the calls of a node agent to it. `rehearsed` creates the restore steps of that
   * server.
   */
  readonly play: (
    rehearsed: (connections: RenewedParts<Connection>["connections"]) => Restore<Connection>,
  ) => Promise<void>;
}

/**
 * Before a snapshot, runs the calls that a node agent will make after the restore. Clones of the snapshot then need not
 * compile the code of these calls or read it from disk. Changes nothing in the guest. Rejects if one of these calls
 * cannot be made.
 */
export async function rehearse<Connection>({ duties, own, play }: RehearsalParts<Connection>): Promise<void> {
  await play((connections) =>
    rehearsedDuties({ ...duties, renew: { ...duties.renew, ...own, connections, readiness: undefined } }),
  );
  // A POST_RESTORE hook calls `settled` to wait for running restore steps. The rehearsal only runs the code of
  // `settled` once, with an aborted signal, so that it does not wait. Waiting could be a deadlock: running restore
  // steps may be waiting for the freeze to which this rehearsal belongs.
  await duties.dutyQueue.settled(AbortSignal.abort()).catch(() => {});
}

/**
 * Restore steps for a rehearsal. They run the same code as real ones, but mix in no entropy, change neither the clock
 * nor the time of the last user activity, and log nothing. They do read the credential and spec files again and use
 * changed ones, but they wait for the file system for at most a second.
 *
 * @param parts its `renew` has the `rotation` of the agent itself; all other objects in `renew` exist only for the
 *   rehearsal
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
