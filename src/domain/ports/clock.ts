/** Times of the guest. Wall-clock times are nanoseconds since 1970 (CLOCK_REALTIME), monotonic ones count from an arbitrary start. */
export interface Clock {
  /** CLOCK_REALTIME, in nanoseconds since 1970. Jumps when the clock is stepped. */
  wallNs(): bigint;
  /** A clock that is never stepped, in milliseconds. For durations and deadlines. */
  monotonicMs(): number;
}
