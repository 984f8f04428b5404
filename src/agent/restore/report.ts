import type { Errno } from "../domain/index.ts";
import type { DutiesThaw } from "../session/index.ts";

/** Parameters of RunRestoreDuties (message RestoreDutiesRequest). */
export interface RestoreRequest {
  /** Fresh random bytes of the host. Overwritten with zeros after use. */
  readonly entropy: Uint8Array;
  /** Time of the host in nanoseconds since 1970; if undefined, the clock is not changed. */
  readonly hostTimeNs: bigint | undefined;
  /**
   * Whether to keep a frozen session frozen, because another RunRestoreDuties call will follow. The time limit
   * freeze_ms continues to run.
   */
  readonly keepFrozen?: boolean;
}

/** Result of RunRestoreDuties (message RestoreDutiesResponse). */
export interface RestoreReport extends DutiesThaw {
  /** Number of bytes of entropy that the kernel's random generator has accepted. */
  readonly entropyBytesMixed: number;
  /** Whether the kernel has credited all mixed bytes as entropy. */
  readonly entropyCredited: boolean;
  /** Guest time minus host time when the call arrived, before any step; 0 without host time. */
  readonly clockDriftMs: bigint;
  readonly clockStepped: boolean;
  /** The restore steps that failed; empty if all succeeded. */
  readonly degraded: readonly DegradedToken[];
}

/** A failed restore step as stable text. Clients compare these texts: never rename one. snapshots.md lists them. */
export type DegradedToken =
  /** Fewer than 32 bytes of entropy were given. They were used anyway. */
  | "entropy_short"
  /** No random device could be opened: nothing was mixed in. */
  | `entropy_open:${Errno}`
  /** The kernel has mixed in some bytes without counting them as entropy (it did not credit them). */
  | `entropy_credit:${Errno}`
  /** Some entropy could not be mixed in. */
  | `entropy_mix:${Errno}`
  /** The kernel's generator was not reseeded. */
  | `crng_reseed:${Errno}`
  /** The reseed cannot be confirmed: the kernel is so old that it reports success even without a reseed. */
  | "crng_reseed:unverified"
  /** The random generators in the agent's own process could not be reseeded. */
  | "openssl_drbg:no_symbols"
  | "openssl_drbg:failed"
  /** The kernel refused to step the clock. */
  | `clock_set:${Errno}`
  /** The call was repeated or delayed: host_time is the time that was last applied, or up to a minute older. */
  | "clock_stale"
  /** host_time is outside of the validity of the caller's certificate. */
  | "clock_outside_cert"
  /** The credential files could not be read or are inconsistent: the old credentials stay in use. */
  | "credentials_reload:refused"
  /** A spec file is invalid: the variables of its `env` stay as they were. Each file is checked separately. */
  | "process_env:refused";
