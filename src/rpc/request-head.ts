import { parseContentType, parseTimeout } from "@connectrpc/connect/protocol-grpc";
import { AgentError } from "../domain/index.ts";
import type { Fields, RequestFields } from "../http2/index.ts";

/** Answer to a request that is not gRPC at all (gRPC over HTTP/2: "HTTP status of 415"). */
export function httpRefusal(headers: RequestFields): Fields | undefined {
  if (headers[":method"] !== "POST") return { ":status": "405", allow: "POST" };
  if (parseContentType(headers["content-type"] ?? null)?.binary !== true) {
    return { ":status": "415", "accept-post": "application/grpc, application/grpc+proto" };
  }
  return undefined;
}

/** Time allowed by grpc-timeout in milliseconds; undefined: no limit. Throws AgentError for a malformed one. */
export function requestTimeoutMs(headers: RequestFields): number | undefined {
  const value = headers["grpc-timeout"];
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
export function requireIdentityEncoding(headers: RequestFields): void {
  const encoding = headers["grpc-encoding"];
  if (encoding === undefined || encoding === "identity") return;
  throw new AgentError(
    "UNIMPLEMENTED",
    "UNSUPPORTED_COMPRESSION",
    "grpc-encoding is not supported; send messages uncompressed (identity)",
    { field: "grpc-encoding" },
  );
}
