import { toJson } from "@bufbuild/protobuf";
import { restoreDuties } from "../../client/index.ts";
import { RestoreDutiesResponseSchema } from "../../gen/svc/guest/v1alpha1/restore_pb.ts";
import { type Command, defineCommand } from "../command-line.ts";
import { CONNECTION_OPTIONS, connector } from "../connection.ts";
import { STATUS_NOT_AS_INTENDED, UsageError } from "../errors.ts";
import { asText, DUTIES_OPTIONS, dutiesLines, dutiesOptions } from "../restore.ts";

export const restore: Command = defineCommand({
  usage: ["restore [options]"],
  about: `Has a restored guest do its duties: fresh randomness from this host's generator, its clock stepped to this host's time,
credentials read anew, every other connection closed. "restore-sequence" does all that a restore needs.`,
  options: { ...DUTIES_OPTIONS, ...CONNECTION_OPTIONS },
  notes: `With --json, the fields of the schema (RestoreDutiesResponse): "entropy_bytes_mixed", "entropy_credited",
"clock_drift_ms" (text), "clock_stepped", "degraded".`,
  statuses: '0 every duty done, 1 some could not be (see "degraded" in docs/operations.md), 125 guestctl failed.',
  examples: ["restore", "restore --no-time --json"],
  completes: ["nothing"],
  async run({ values, positionals }, host) {
    if (positionals.length > 0) throw new UsageError("restore takes no arguments");
    const options = dutiesOptions(values);
    const response = await restoreDuties((await connector(values, host)).connect, options);
    const json = toJson(RestoreDutiesResponseSchema, response, { alwaysEmitImplicit: true, useProtoFieldName: true });
    host.stdout.write(
      values.json === true ? `${JSON.stringify(json)}\n` : asText(dutiesLines(response, options.hostTime !== false)),
    );
    return response.degraded === "" ? 0 : STATUS_NOT_AS_INTENDED;
  },
});
