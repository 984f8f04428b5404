import { create } from "@bufbuild/protobuf";
import {
  type RestoreDutiesRequest,
  type RestoreDutiesResponse,
  RestoreDutiesResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import type { Restore } from "../../restore/index.ts";
import type { Call } from "../call.ts";
import type { Session } from "../context.ts";
import { timestampNs } from "../codec.ts";

/** Serves one RunRestoreDuties call. The entropy is overwritten, whether the duties used it or never began. */
export async function serveRestoreDuties(
  restore: Restore<Session>,
  request: RestoreDutiesRequest,
  call: Pick<Call, "receivedAt" | "session" | "signal">,
): Promise<RestoreDutiesResponse> {
  try {
    const hostTimeNs = request.hostTime && timestampNs("host_time", request.hostTime);
    const { receivedAt, session, signal } = call;
    const report = await restore.run(
      { entropy: request.entropy, hostTimeNs },
      { arrival: receivedAt, validity: session.peer.certificate, session, signal },
    );
    return create(RestoreDutiesResponseSchema, { ...report, degraded: report.degraded.join(";") });
  } finally {
    request.entropy.fill(0);
  }
}
