import type { Timestamp } from "@bufbuild/protobuf/wkt";

/** The last millisecond that a Date holds, on both sides of 1970 (ECMA-262, 21.4.1.1). */
const DATE_LIMIT_MS = 8.64e15;

/** A time as programs have it; one that no Date holds becomes the nearest. */
export function dateOf({ seconds, nanos }: Timestamp): Date {
  const ms = Number(seconds) * 1_000 + Math.floor(nanos / 1_000_000);
  return new Date(Math.min(Math.max(ms, -DATE_LIMIT_MS), DATE_LIMIT_MS));
}

/** The nanoseconds of a time within its second. */
export function nanosOf(time: Timestamp | undefined): number {
  return time?.nanos ?? 0;
}
