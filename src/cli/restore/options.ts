import type { DutiesOptions } from "../../client/index.ts";
import { UsageError } from "../errors.ts";
import { parseCount, parseDurationMs } from "../values.ts";

/** Options of the commands that have the duties done. */
export const DUTIES_OPTIONS = {
  "entropy-bytes": {
    type: "string",
    argument: "N",
    help: "bytes of this host's generator to send (default 64, at most 65536)",
  },
  "no-time": { type: "boolean", help: "leave the guest's clock alone" },
  wait: { type: "string", argument: "DURATION", help: "how long to try to reach the agent (default 10s)" },
} as const;

/** Values of DUTIES_OPTIONS. */
export interface DutiesValues {
  readonly "entropy-bytes"?: string | undefined;
  readonly "no-time"?: boolean | undefined;
  readonly wait?: string | undefined;
}

const ENTROPY_LIMIT_BYTES = 65_536;

/** Reads them. Throws UsageError. */
export function dutiesOptions(values: DutiesValues): DutiesOptions {
  const bytes = values["entropy-bytes"];
  const entropyBytes = bytes === undefined ? undefined : parseCount(bytes, "--entropy-bytes", 1);
  if (entropyBytes !== undefined && entropyBytes > ENTROPY_LIMIT_BYTES) {
    throw new UsageError(`--entropy-bytes may be ${ENTROPY_LIMIT_BYTES} at most`);
  }
  const reachMs = values.wait === undefined ? undefined : parseDurationMs(values.wait, "--wait");
  return { entropyBytes, hostTime: values["no-time"] !== true, reachMs };
}
