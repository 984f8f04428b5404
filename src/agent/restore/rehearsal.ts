import { ActivityClock, type Kernel, SILENT_LOG, Stamps, within } from "../domain/index.ts";
import type { Renewal } from "./credential-rotation.ts";
import { type RenewedParts, Restore, type RestoreParts } from "./restore.ts";
import { DutyQueue } from "./duty-queue.ts";

/** How long the rehearsal before a snapshot waits for the credential files, because their file system may hang. */
const FILES_LIMIT_MS = 1_000;
/**
 * Arguments that the addon rejects: empty entropy, and a time before 1970. A rehearsal passes them so that it changes
 * nothing.
 */
const NO_ENTROPY = new Uint8Array();
const BEFORE_1970_NS = -1n;
const NONE_REFUSED: Renewal = { credentials: true, environment: true };

/** The objects that the rehearsal uses instead of the agent's own, so that it changes nothing. */
type Rehearsed<Connection> = Pick<RenewedParts<Connection>, "hooks" | "freeze">;

export interface RehearsalParts<Connection> {
  readonly duties: RestoreParts<Connection>;
  readonly own: Rehearsed<Connection>;
  /** Makes the calls of a node agent to an in-memory server. `rehearsed` creates the restore steps for that server. */
  readonly play: (
    rehearsed: (connections: RenewedParts<Connection>["connections"]) => Restore<Connection>,
  ) => Promise<void>;
}

/**
 * Runs, before a snapshot, the calls that a node agent makes after the restore, so that clones need not load and
 * compile their code. Changes nothing in the guest. Rejects if `play` does.
 */
export async function rehearse<Connection>({ duties, own, play }: RehearsalParts<Connection>): Promise<void> {
  await play((connections) =>
    rehearsedDuties({ ...duties, renew: { ...duties.renew, ...own, connections, readiness: undefined } }),
  );
  // A POST_RESTORE hook makes this call to wait for running restore steps. The rehearsal must not wait, because running
  // restore steps may wait for the end of the rehearsal. So its signal is already aborted.
  await duties.dutyQueue.settled(AbortSignal.abort()).catch(() => {});
}

/**
 * Creates restore steps that run the real code, but do not change randomness, clock and user activity, and log nothing.
 * The only exception is the reload of changed credential and spec files: it is real, logs problems, and is awaited for
 * at most a second.
 *
 * @param parts `renew.rotation` is the agent's own; the other objects in `renew` exist only for the rehearsal
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
