import type { Awakening, SandboxEntry, SnapshotEntry } from "../state/index.ts";
import type { InstanceState } from "../substrate/index.ts";

/** A sandbox, as this node knows it. Operations are possible only in the phase "ready". */
export interface SandboxInfo extends SandboxEntry {
  /** State of the instance at the substrate; undefined if there is no instance. */
  readonly state: InstanceState | undefined;
  /** Why the state is "Unknown", in the daemon's words. */
  readonly stateError?: string | undefined;
  /** Time at which the credentials expire, as Unix time in milliseconds by the host's clock. Only `get` determines this. */
  readonly credentialsExpireMs?: number | undefined;
  /**
   * Why the agent has exited, in the guest's words, such as "the workload ran out of memory". Only `get` determines
   * this.
   */
  readonly endedBecause?: string | undefined;
  /** Address of the agent, as HOST:PORT. */
  readonly address: string | undefined;
  /** Directory of the credentials, in the layout that `guestctl --credentials` expects. */
  readonly credentials: string;
}

/** Result of `snapshot`. */
export interface SnapshotResult {
  /** The new snapshot. `fork(snapshot.name)` creates a sandbox from it, and `remove(snapshot.name)` removes it. */
  readonly snapshot: SnapshotEntry;
  /**
   * How the sandbox was resumed after the snapshot was taken. Its warnings include NOT_FROZEN if the session could not
   * be frozen.
   */
  readonly awakening: Awakening;
}

/** Result of `fork`. */
export interface ForkResult {
  /** The new sandbox, which is running. */
  readonly sandbox: SandboxInfo;
  /** How the new sandbox was resumed. */
  readonly awakening: Awakening;
  /**
   * How the source was resumed after the fork. Undefined if the source was not running, that is, for a snapshot and for
   * a sandbox in standby.
   */
  readonly source: Awakening | undefined;
}
