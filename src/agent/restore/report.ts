import type { Errno } from "../domain/index.ts";
import type { DutiesThaw } from "../session/index.ts";

/** Parameters of RunRestoreDuties (message RestoreDutiesRequest). */
export interface RestoreRequest {
  /** Fresh random bytes of the host. Overwritten with zeros after use. */
  readonly entropy: Uint8Array;
  /** Time of the host in nanoseconds since 1970; undefined: leave the clock alone. */
  readonly hostTimeNs: bigint | undefined;
  /** Keep a frozen session frozen, because more duties will follow. Its freeze_ms continues to run. */
  readonly keepFrozen?: boolean;
}

/** Result of RunRestoreDuties (message RestoreDutiesResponse). */
export interface RestoreReport extends DutiesThaw {
  /** Bytes that the kernel accepted. */
  readonly entropyBytesMixed: number;
  /** True if all bytes were also credited. */
  readonly entropyCredited: boolean;
  /** Guest time minus host time when the call arrived, before any step; 0 without host time. */
  readonly clockDriftMs: bigint;
  readonly clockStepped: boolean;
  /** Empty if every duty succeeded. */
  readonly degraded: readonly DegradedToken[];
}

/** A failed duty as stable text, which clients compare: never rename one. operations.md lists them all. */
export type DegradedToken =
  /** Fewer than 32 bytes of entropy were given. They were used anyway. */
  | "entropy_short"
  /** No random device could be opened: nothing was mixed in. */
  | `entropy_open:${Errno}`
  /** Some entropy was mixed in but could not be credited. */
  | `entropy_credit:${Errno}`
  /** Some entropy could not be mixed in. */
  | `entropy_mix:${Errno}`
  /** The kernel's generator was not reseeded. */
  | `crng_reseed:${Errno}`
  /** The kernel reports a reseed, but old kernels report this even if it did not happen. */
  | "crng_reseed:unverified"
  /** The agent's own generators could not be reseeded. */
  | "openssl_drbg:no_symbols"
  | "openssl_drbg:failed"
  /** The kernel refused to step the clock. */
  | `clock_set:${Errno}`
  /** host_time is the last applied one or up to a minute older: a repeated or delayed call. */
  | "clock_stale"
  /** host_time is outside of the validity of the caller's certificate. */
  | "clock_outside_cert"
  /** The credential files could not be read or are inconsistent: the old ones stay in use. */
  | "credentials_reload:refused"
  /** A spec file is invalid: the variables of its `env` stay as they were. Each file is checked separately. */
  | "process_env:refused";
