import { messageOf } from "../../../shared/errors.ts";
import type { Awakening, Warning } from "../state/index.ts";
import { type Remedy, SandboxError, sandboxError } from "../substrate/index.ts";

/** The result of a sweep. Sandboxes, snapshots and objects are given by their names or ids. */
export interface SweepReport {
  /**
   * Entries that were removed: sandboxes and snapshots that were only partly created or partly removed, or whose
   * instance is gone, and hostnames that were only partly published.
   */
  readonly removed: readonly string[];
  /**
   * Orphans that were removed: instances, snapshots, volumes and ingresses of this node that have no entry in its
   * journal, and volumes of older agents that no node uses.
   */
  readonly orphans: readonly string[];
  /**
   * Sandboxes that had been running since a restore without having run their restore steps. The sweep has now run these
   * steps.
   */
  readonly awakened: readonly string[];
  /**
   * Sandboxes whose session thawed by itself before its restore steps were run. Until the sweep, they ran with the
   * random numbers, the clock and the secrets of their source. The sweep has now run the restore steps, unless the
   * sandbox is also in `failed`.
   */
  readonly late: readonly string[];
  /**
   * Warnings about the sandboxes in `awakened`. The field `clockErrorMs` of a warning is the error of the sandbox's
   * clock, for the code CLOCK_OFF.
   */
  readonly warnings: readonly SweepWarning[];
  /** Snapshots that the daemon completed although the process that requested them had ended. */
  readonly completed: readonly string[];
  /** What the sweep could not finish or remove, with the reasons. The next sweep tries again. */
  readonly failed: readonly SweepFailure[];
}

/** A warning about a sandbox whose restore steps were run. */
export type SweepWarning = Warning & { readonly name: string } & Pick<Awakening, "clockErrorMs">;

/** Why a sweep could not finish or remove the sandbox, snapshot or object with this name. */
export interface SweepFailure {
  readonly name: string;
  readonly code: string;
  readonly message: string;
  /** What the operator should do; undefined if `message` already says it. */
  readonly nextStep?: string | undefined;
  readonly remedy?: Remedy | undefined;
}

/** The report of a sweep that is still running; the sweep adds its results to it. */
export class Report implements SweepReport {
  readonly removed: string[] = [];
  readonly orphans: string[] = [];
  readonly awakened: string[] = [];
  readonly late: string[] = [];
  readonly warnings: SweepWarning[] = [];
  readonly completed: string[] = [];
  readonly failed: SweepFailure[] = [];

  /** Runs one action of the sweep. If it fails, its failure is added to the report, and the sweep continues. */
  async attempt(name: string, action: () => Promise<void>): Promise<void> {
    try {
      await action();
    } catch (error) {
      this.fail(name, error);
    }
  }

  fail(name: string, error: unknown): void {
    const failure = sandboxError(error);
    // Another process is working on the object. The sweep skips the object, which is not a failure.
    if (failure instanceof SandboxError && failure.code === "SANDBOX_BUSY") return;
    const { code, nextStep, remedy } = failure instanceof SandboxError ? failure : INTERNAL;
    this.failed.push({ name, code, message: messageOf(failure), nextStep, remedy });
  }

  get data(): SweepReport {
    const { removed, orphans, awakened, late, warnings, completed, failed } = this;
    return { removed, orphans, awakened, late, warnings, completed, failed };
  }
}

const INTERNAL = { code: "INTERNAL", nextStep: undefined, remedy: undefined };
