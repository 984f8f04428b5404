import { messageOf } from "../../../shared/errors.ts";
import type { Awakening, Warning } from "../node/index.ts";
import { type Remedy, SandboxError, sandboxError } from "../substrate/index.ts";

/** What a sweep has done, by names and ids. */
export interface SweepReport {
  /** Sandboxes and snapshots that were half made or half removed, or lost their instance; hostnames half published. */
  readonly removed: readonly string[];
  /**
   * Instances, snapshots, volumes and ingresses of this node that are not in its journal; volumes of older agents that
   * no node uses.
   */
  readonly orphans: readonly string[];
  /** Sandboxes that ran after a restore without having done their duties. */
  readonly awakened: readonly string[];
  /**
   * Sandboxes whose session thawed by itself before their duties: they have run with the randomness, the clock and the
   * secrets of their source. Their duties are done now, unless they are also in `failed`.
   */
  readonly late: readonly string[];
  /** Warnings about those that were awakened, with the error of the clock that CLOCK_OFF is about. */
  readonly warnings: readonly SweepWarning[];
  /** Snapshots that the daemon has taken although the process that asked for them has ended. */
  readonly completed: readonly string[];
  /** What could not be done, and why. The next sweep tries again. */
  readonly failed: readonly SweepFailure[];
}

/** A warning about a sandbox that was awakened. */
export type SweepWarning = Warning & { readonly name: string } & Pick<Awakening, "clockErrorMs">;

/** What a sweep could not do. */
export interface SweepFailure {
  readonly name: string;
  readonly code: string;
  readonly message: string;
  /** What to do; undefined where the message says it. */
  readonly nextStep?: string | undefined;
  readonly remedy?: Remedy | undefined;
}

/** A report that is being written. */
export class Report implements SweepReport {
  readonly removed: string[] = [];
  readonly orphans: string[] = [];
  readonly awakened: string[] = [];
  readonly late: string[] = [];
  readonly warnings: SweepWarning[] = [];
  readonly completed: string[] = [];
  readonly failed: SweepFailure[] = [];

  /** Does one thing of the sweep, whose failure is reported and stops nothing else. */
  async attempt(name: string, action: () => Promise<void>): Promise<void> {
    try {
      await action();
    } catch (error) {
      this.fail(name, error);
    }
  }

  fail(name: string, error: unknown): void {
    const failure = sandboxError(error);
    // Another process works on it, so it is not left over.
    if (failure instanceof SandboxError && failure.code === "SANDBOX_BUSY") return;
    const { code, nextStep, remedy } = failure instanceof SandboxError ? failure : INTERNAL;
    this.failed.push({ name, code, message: messageOf(failure), nextStep, remedy });
  }

  /** The report as plain data. */
  get data(): SweepReport {
    const { removed, orphans, awakened, late, warnings, completed, failed } = this;
    return { removed, orphans, awakened, late, warnings, completed, failed };
  }
}

const INTERNAL = { code: "INTERNAL", nextStep: undefined, remedy: undefined };
