import { create } from "@bufbuild/protobuf";
import {
  type RestoreDutiesRequest,
  type RestoreDutiesResponse,
  RestoreDutiesResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import type { Restore } from "../../restore/index.ts";
import type { Call } from "../call.ts";
import type { Connection } from "../../listening/index.ts";
import { timestampNs } from "../codec.ts";

/** Serves RunRestoreDuties. Always wipes the entropy in the request afterwards, even if no restore step has begun. */
export async function serveRestoreDuties(
  restore: Restore<Connection>,
  request: RestoreDutiesRequest,
  call: Pick<Call, "receivedAt" | "connection" | "signal">,
): Promise<RestoreDutiesResponse> {
  try {
    const hostTimeNs = request.hostTime && timestampNs("host_time", request.hostTime);
    const { receivedAt, connection, signal } = call;
    const report = await restore.run(
      { entropy: request.entropy, hostTimeNs, keepFrozen: request.keepFrozen },
      { arrival: receivedAt, validity: connection.peer.certificate, connection, signal },
    );
    return create(RestoreDutiesResponseSchema, { ...report, degraded: report.degraded.join(";") });
  } finally {
    request.entropy.fill(0);
  }
}
