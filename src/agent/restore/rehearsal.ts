import { ActivityClock, type Kernel, SILENT_LOG, Stamps, within } from "../domain/index.ts";
import type { Renewal } from "./credential-rotation.ts";
import { type RenewedParts, Restore, type RestoreParts } from "./restore.ts";
import { DutyTurns } from "./turns.ts";

/** How long a snapshot waits for the credentials' file system. */
const FILES_LIMIT_MS = 1_000;
/** What the addon refuses: no entropy at all, and a time before 1970. */
const NO_ENTROPY = new Uint8Array();
const BEFORE_1970_NS = -1n;
const NONE_REFUSED: Renewal = { credentials: true, environment: true };

/** Objects that only a rehearsal knows, in place of the agent's. */
type Rehearsed<Connection> = Pick<RenewedParts<Connection>, "hooks" | "freeze">;

/** What a rehearsal needs. */
export interface RehearsalParts<Connection> {
  readonly duties: RestoreParts<Connection>;
  readonly own: Rehearsed<Connection>;
  /** Plays a client's calls against a server in memory; the duties are those that `rehearsed` makes for it. */
  readonly play: (
    rehearsed: (connections: RenewedParts<Connection>["connections"]) => Restore<Connection>,
  ) => Promise<void>;
}

/**
 * Runs before a snapshot what a node calls after the restore, so that no clone compiles its code, or reads it from a
 * disk. Changes nothing of the guest. Rejects as `play` does.
 */
export async function rehearse<Connection>({ duties, own, play }: RehearsalParts<Connection>): Promise<void> {
  await play((connections) =>
    rehearsedDuties({ ...duties, renew: { ...duties.renew, ...own, connections, readiness: undefined } }),
  );
  // As a POST_RESTORE hook does. Does not wait: duties may be waiting for this snapshot.
  await duties.turns.settled(AbortSignal.abort()).catch(() => {});
}

/**
 * Duties for a rehearsal. They run what the real ones run, but mix no entropy in, leave the clock and the user's
 * activity alone, and log nothing. They reread credential and spec files, and put changed ones in force, and wait a
 * second at most for their file system.
 *
 * @param parts whose `renew` is over objects that only the rehearsal knows, files excepted
 */
export function rehearsedDuties<Connection>(parts: RestoreParts<Connection>): Restore<Connection> {
  const { clock, kernel, renew } = parts;
  const { rotation } = renew;
  const stamps = new Stamps(clock);
  return new Restore({
    ...parts,
    kernel: harmless(kernel),
    stamps,
    activity: new ActivityClock(stamps),
    log: SILENT_LOG,
    turns: new DutyTurns(),
    renew: {
      ...renew,
      rotation: {
        renew: async () => {
          await within(rotation.renew("snapshot"), FILES_LIMIT_MS);
          return NONE_REFUSED;
        },
        rearm: () => rotation.rearm(),
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
