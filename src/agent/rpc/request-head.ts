import { parseContentType, parseTimeout } from "@connectrpc/connect/protocol-grpc";
import { AgentError } from "../domain/index.ts";
import type { Fields, RequestFields } from "../http2/index.ts";

/** Answer to a request that is not gRPC. */
interface HttpRefusal {
  readonly fields: Fields;
  readonly body: string;
}

/** The refusal of a request that is not gRPC (gRPC over HTTP/2: "HTTP status of 415"); undefined: it is. */
export function httpRefusal(fields: RequestFields): HttpRefusal | undefined {
  if (fields[":method"] !== "POST") return refusal({ ":status": "405", allow: "POST" });
  if (parseContentType(fields["content-type"] ?? null)?.binary !== true) {
    return refusal({ ":status": "415", "accept-post": "application/grpc, application/grpc+proto" });
  }
  return undefined;
}

function refusal(fields: Fields): HttpRefusal {
  const body = "This is a gRPC service: send POST with content-type application/grpc.\n";
  return { fields: { ...fields, "content-type": "text/plain", "content-length": String(body.length) }, body };
}

/** Time allowed by grpc-timeout in milliseconds; undefined: no limit. Throws AgentError for a malformed one. */
export function requestTimeoutMs(fields: RequestFields): number | undefined {
  const value = fields["grpc-timeout"];
  if (value === undefined) return undefined;
  const { timeoutMs, error } = parseTimeout(value, Number.POSITIVE_INFINITY);
  if (error !== undefined) {
    throw new AgentError(
      "INVALID_ARGUMENT",
      "INVALID_FIELD",
      "grpc-timeout is malformed; it is at most 8 digits and a unit (H, M, S, m, u or n)",
      { field: "grpc-timeout" },
    );
  }
  return timeoutMs;
}

/** Refuses a request whose messages may be compressed. Throws AgentError. */
export function requireIdentityEncoding(fields: RequestFields): void {
  const encoding = fields["grpc-encoding"];
  if (encoding === undefined || encoding === "identity") return;
  throw new AgentError(
    "UNIMPLEMENTED",
    "UNSUPPORTED_COMPRESSION",
    "grpc-encoding is not supported; send messages uncompressed (identity)",
    { field: "grpc-encoding" },
  );
}
