import { toJson } from "@bufbuild/protobuf";
import { restoreDuties } from "../../client/index.ts";
import { RestoreDutiesResponseSchema } from "../../gen/svc/guest/v1alpha1/restore_pb.ts";
import { clientFactory, CONNECTION_HELP, CONNECTION_OPTIONS } from "../connection.ts";
import { UsageError } from "../errors.ts";
import { STATUS_NOT_AS_INTENDED } from "../exit-status.ts";
import { asText, DUTIES_HELP, DUTIES_OPTIONS, dutiesLines, dutiesOptions } from "../restore/index.ts";
import { type Command, defineCommand } from "./command.ts";

const HELP = `Usage: guestctl restore [options]

Has a restored guest do its duties: fresh randomness from this host's generator, its clock stepped to this host's time,
credentials read anew, every other connection closed. "restore-sequence" does all that a restore needs.

${DUTIES_HELP}
${CONNECTION_HELP}

Exit status: 0 every duty done, 1 some could not be (see "degraded" in docs/operations.md), 125 guestctl failed.

Examples:
  guestctl restore
  guestctl restore --no-time --json
`;

export const restore: Command = defineCommand({
  help: HELP,
  options: { ...CONNECTION_OPTIONS, ...DUTIES_OPTIONS },
  async run({ values, positionals }, host) {
    if (positionals.length > 0) throw new UsageError("restore takes no arguments");
    const options = dutiesOptions(values);
    const response = await restoreDuties(await clientFactory(values, host.env), options);
    const json = toJson(RestoreDutiesResponseSchema, response, { alwaysEmitImplicit: true, useProtoFieldName: true });
    host.stdout.write(
      values.json === true ? `${JSON.stringify(json)}\n` : asText(dutiesLines(response, options.hostTime !== false)),
    );
    return response.degraded === "" ? 0 : STATUS_NOT_AS_INTENDED;
  },
});
