import { create } from "@bufbuild/protobuf";
import { AgentError } from "../../domain/index.ts";
import type { Health, HealthWatches } from "../../health/index.ts";
import {
  Health as StandardHealth,
  type HealthCheckResponse,
  HealthCheckResponse_ServingStatus as ServingStatus,
  HealthCheckResponseSchema,
} from "../../../shared/gen/grpc/health/v1/health_pb.ts";
import { messageFrame } from "../codec.ts";
import type { Router } from "../router.ts";

/** Serves the standard health service of gRPC (grpc.health.v1.Health), which probes of orchestrators use. */
export function serveStandardHealth(router: Router, health: Health, watches: HealthWatches): void {
  const serves = (service: string): boolean => service === "" || router.services().includes(service);
  router.unary(StandardHealth.method.check, ({ service }) => {
    if (serves(service)) return statusOf(health.report().ready);
    const problem = `this agent does not serve ${service.slice(0, 200)}`;
    throw new AgentError("NOT_FOUND", "SERVICE_NOT_FOUND", problem, { service: service.slice(0, 200) });
  });
  router.serverStream(StandardHealth.method.watch, ({ service }, call) => {
    const isServed = serves(service);
    const send = (ready: boolean): Promise<void> =>
      new Promise((taken) => {
        const response = isServed ? statusOf(ready) : responseOf(ServingStatus.SERVICE_UNKNOWN);
        call.send(messageFrame(HealthCheckResponseSchema, response), taken);
      });
    return watches.watch({ isServed, send, signal: call.signal });
  });
}

function statusOf(ready: boolean): HealthCheckResponse {
  return responseOf(ready ? ServingStatus.SERVING : ServingStatus.NOT_SERVING);
}

function responseOf(status: ServingStatus): HealthCheckResponse {
  return create(HealthCheckResponseSchema, { status });
}
