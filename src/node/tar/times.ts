const NS_PER_SECOND = 1_000_000_000n;
const double = new Float64Array(1);
const bits = new BigInt64Array(double.buffer);

/**
 * A time in seconds, as Node sets it: the nearest number that is not earlier, at most 0.24 µs later until 2106. An
 * earlier time would make a copy older than its source, which `make` and `rsync -u` then take for out of date.
 */
export function secondsNotBefore(timeNs: bigint): number {
  const nanos = ((timeNs % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  let seconds = Number((timeNs - nanos) / NS_PER_SECOND) + Number(nanos) / Number(NS_PER_SECOND);
  while (nanosecondsOf(seconds) < timeNs) seconds = nextAbove(seconds);
  return seconds;
}

/** What the kernel gets of it (uv_fs_utime of libuv 1.52). */
function nanosecondsOf(seconds: number): bigint {
  const whole = Math.floor(seconds);
  return BigInt(whole) * NS_PER_SECOND + BigInt(Math.floor((seconds - whole) * Number(NS_PER_SECOND)));
}

/** The next number that a double holds (IEEE 754). */
function nextAbove(number: number): number {
  double[0] = number;
  bits[0] = number < 0 ? (bits[0] ?? 0n) - 1n : (bits[0] ?? 0n) + 1n;
  return double[0] ?? number;
}
