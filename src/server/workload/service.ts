import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { create } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { createConnectRouter } from "@connectrpc/connect";
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from "@connectrpc/connect-node";
import { DeclareIdleResponseSchema, WorkloadService } from "../../gen/svc/guest/v1alpha1/workload_pb.ts";

const NS_PER_SECOND = 1_000_000_000n;
/** Far above any request of the service. */
const REQUEST_LIMIT_BYTES = 64 * 1024;

/**
 * Replaces `:authority` and `Host`, which mean nothing on a unix socket: gRPC's C core sends the percent-encoded path of
 * the socket, which is not valid in a URL, and others send nothing.
 */
const AUTHORITY = "localhost";

/** Records that the workload is idle and says when, in nanoseconds since 1970. */
export type DeclareIdle = () => { readonly declaredAtNs: bigint };

/** A request and its response, of either HTTP version. */
export type HttpExchange = (
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
) => Promise<void>;

/** WorkloadService over gRPC, the Connect protocol and plain JSON. Rejects for requests that end early. */
export function workloadService(declareIdle: DeclareIdle): HttpExchange {
  const router = createConnectRouter({ grpcWeb: false, acceptCompression: [], readMaxBytes: REQUEST_LIMIT_BYTES });
  router.service(WorkloadService, {
    declareIdle: () => {
      const { declaredAtNs } = declareIdle();
      const declaredAt = create(TimestampSchema, {
        seconds: declaredAtNs / NS_PER_SECOND,
        nanos: Number(declaredAtNs % NS_PER_SECOND),
      });
      return create(DeclareIdleResponseSchema, { declaredAt });
    },
  });
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
  return async (request, response) => {
    const handler = handlers.get(request.url?.split("?", 1)[0] ?? "");
    if (handler === undefined) {
      response.statusCode = 404;
      response.end();
      return;
    }
    if ("authority" in request) Object.defineProperty(request, "authority", { value: AUTHORITY });
    else request.headers.host = AUTHORITY;
    const answer = await handler(universalRequestFromNodeRequest(request, response, undefined, undefined));
    await universalResponseToNodeResponse(answer, response);
  };
}
