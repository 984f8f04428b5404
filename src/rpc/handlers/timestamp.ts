import { create } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";

const NS_PER_SECOND = 1_000_000_000n;

/** Nanoseconds since 1970 as a protobuf timestamp, whose nanos count forward from the second below. */
export function timestamp(ns: bigint): Timestamp {
  const nanos = ((ns % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND;
  return create(TimestampSchema, { seconds: (ns - nanos) / NS_PER_SECOND, nanos: Number(nanos) });
}
