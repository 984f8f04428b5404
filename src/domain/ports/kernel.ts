/** Symbolic errno of a call that failed, such as "EPERM". */
export type Errno = string;

/** The kernel's random number generator, by way of its device. */
export interface EntropyDevice {
  /** Mixes a block of at most 512 bytes in and credits all of it (RNDADDENTROPY). Undefined: done. */
  credit(block: Uint8Array): Errno | undefined;
  /** Mixes bytes in without credit; how many were taken. */
  mix(bytes: Uint8Array): number | Errno;
  /** Forces a new key from the pool (RNDRESEEDCRNG). Undefined: the kernel says that it was done. */
  reseed(): Errno | undefined;
  close(): void;
}

/** What only the kernel can do for a restored guest. */
export interface Kernel {
  /** Opens the random device, never anything that merely has its name. */
  openEntropyDevice(): EntropyDevice | Errno;
  /** Whether this kernel's answer to a forced reseed can be believed: older ones report success for doing nothing. */
  readonly confirmsReseed: boolean;
  /** Steps the guest clock, in nanoseconds since 1970. Undefined: done. */
  stepClock(wallNs: bigint): Errno | undefined;
}

/** The random number generators of this very process. */
export interface ProcessRandomness {
  /**
   * Reseeds them, from the kernel and with `seed` as additional input, and empties all caches of numbers drawn before.
   * What could not be done, or undefined.
   */
  reseed(seed: Uint8Array): "no_symbols" | "failed" | undefined;
}
