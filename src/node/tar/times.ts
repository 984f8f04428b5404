const NS_PER_SECOND = 1_000_000_000n;
/** First and last nanosecond of the years 1 to 9999, the range of google/protobuf/timestamp.proto. */
const FIRST_NS = -62_135_596_800n * NS_PER_SECOND;
const LAST_NS = 253_402_300_800n * NS_PER_SECOND - 1n;
const double = new Float64Array(1);
const bits = new BigInt64Array(double.buffer);

/**
 * Converts a time to seconds for Node's utimes. Rounds up to the next double that the kernel does not read as an
 * earlier time; until 2106 that is at most 0.24 µs later. An earlier time would make the copy older than its source,
 * and `make` and `rsync -u` would then treat it as out of date.
 */
export function secondsNotBefore(timeNs: bigint): number {
  const nanos = ((timeNs % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  let seconds = Number((timeNs - nanos) / NS_PER_SECOND) + Number(nanos) / Number(NS_PER_SECOND);
  while (nanosecondsOf(seconds) < timeNs) seconds = nextAbove(seconds);
  return seconds;
}

/**
 * Returns the time itself if it is in the years 1 to 9999, otherwise the nearest time in these years. Messages cannot
 * contain other times, but some file systems (tmpfs, XFS, Btrfs) and archives can.
 */
export function sendableTimeNs(timeNs: bigint): bigint {
  return timeNs < FIRST_NS ? FIRST_NS : timeNs > LAST_NS ? LAST_NS : timeNs;
}

/**
 * Returns the time, in nanoseconds, that the kernel stores if Node passes this number of seconds to it (uv_fs_utime of
 * libuv 1.52).
 */
function nanosecondsOf(seconds: number): bigint {
  const whole = Math.floor(seconds);
  return BigInt(whole) * NS_PER_SECOND + BigInt(Math.floor((seconds - whole) * Number(NS_PER_SECOND)));
}

/** Returns the smallest double (IEEE 754) that is larger than a number. */
function nextAbove(number: number): number {
  double[0] = number;
  bits[0] = number < 0 ? (bits[0] ?? 0n) - 1n : (bits[0] ?? 0n) + 1n;
  return double[0] ?? number;
}
