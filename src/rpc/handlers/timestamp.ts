import { create } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { invalidField } from "../../domain/index.ts";

const NS_PER_SECOND = 1_000_000_000n;
/** The years 1 to 9999, which is what a timestamp may hold (google/protobuf/timestamp.proto). */
const FIRST_SECOND = -62_135_596_800n;
const LAST_SECOND = 253_402_300_799n;
const NANOS_LIMIT = 1_000_000_000;

/** Nanoseconds since 1970 as a protobuf timestamp, whose nanos count forward from the second below. */
export function timestamp(ns: bigint): Timestamp {
  const nanos = ((ns % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  return create(TimestampSchema, { seconds: (ns - nanos) / NS_PER_SECOND, nanos: Number(nanos) });
}

/** A protobuf timestamp as nanoseconds since 1970. Throws INVALID_ARGUMENT, with the field's name, for one that is none. */
export function timestampNs(field: string, { seconds, nanos }: Timestamp): bigint {
  if (seconds < FIRST_SECOND || seconds > LAST_SECOND) throw invalidField(field, "is outside the years 1 to 9999");
  if (nanos < 0 || nanos >= NANOS_LIMIT) throw invalidField(field, "has nanos outside 0 to 999999999");
  return seconds * NS_PER_SECOND + BigInt(nanos);
}
