import type { Errno } from "../domain/index.ts";
import type { DutiesThaw } from "../session/index.ts";

/** What RunRestoreDuties is asked to do (message RestoreDutiesRequest). */
export interface RestoreRequest {
  /** Fresh bytes of the host's generator. Overwritten with zeros once used. */
  readonly entropy: Uint8Array;
  /** Time of the host, in nanoseconds since 1970; undefined: the clock is left alone. */
  readonly hostTimeNs: bigint | undefined;
  /** A frozen session stays frozen, as other duties will follow. Its freeze_ms goes on to count. */
  readonly keepFrozen?: boolean;
}

/** What RunRestoreDuties did (message RestoreDutiesResponse). */
export interface RestoreReport extends DutiesThaw {
  /** Bytes that the kernel accepted. */
  readonly entropyBytesMixed: number;
  /** True if every byte was also credited. */
  readonly entropyCredited: boolean;
  /** Guest time minus host time at receipt, before any step; 0 without host time. */
  readonly clockDriftMs: bigint;
  readonly clockStepped: boolean;
  /** Empty when every duty ran as intended. */
  readonly degraded: readonly DegradedToken[];
}

/** A duty that failed, as stable text, which clients compare: never rename one. operations.md has them all. */
export type DegradedToken =
  /** Fewer than 32 bytes of entropy were given. They were used all the same. */
  | "entropy_short"
  /** No random device could be opened: nothing was mixed in. */
  | `entropy_open:${Errno}`
  /** Some entropy could be mixed in, but not credited. */
  | `entropy_credit:${Errno}`
  /** Some entropy could not even be mixed in. */
  | `entropy_mix:${Errno}`
  /** The kernel's generator was not reseeded. */
  | `crng_reseed:${Errno}`
  /** The kernel reports that it reseeded, but a kernel of its age may not have. */
  | "crng_reseed:unverified"
  /** The agent's own generators could not be reseeded. */
  | "openssl_drbg:no_symbols"
  | "openssl_drbg:failed"
  /** The kernel refused to step the clock. */
  | `clock_set:${Errno}`
  /** host_time is the last one applied, or up to a minute older: a repeated or overtaken call. */
  | "clock_stale"
  /** host_time lies outside the validity of the caller's own certificate. */
  | "clock_outside_cert"
  /** The credential files could not be read or do not fit together: the old ones stay in force. */
  | "credentials_reload:refused"
  /** A spec file cannot be used: the variables of its `env` stay as they were. Each file is judged alone. */
  | "process_env:refused";
