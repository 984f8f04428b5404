import { create } from "@bufbuild/protobuf";
import { type HealthResponse, HealthResponseSchema } from "../../gen/svc/guest/v1alpha1/health_pb.ts";
import type { HealthReport } from "../../health/index.ts";
import { timestamp } from "./timestamp.ts";

/** The report as the contract's message. */
export function healthResponse(report: HealthReport): HealthResponse {
  const { ready, readyCommandExit, lastUserActivityNs, guestTimeNs, idleDeclaredNs } = report;
  return create(HealthResponseSchema, {
    alive: true,
    ready,
    readyCmdExit: readyCommandExit,
    lastUserActivity: timestamp(lastUserActivityNs),
    guestTime: timestamp(guestTimeNs),
    ...(idleDeclaredNs === undefined ? {} : { idleDeclared: timestamp(idleDeclaredNs) }),
  });
}
