import { AgentError } from "../domain/index.ts";
import type { Fields, RequestFields } from "../http2/index.ts";

const CONTENT_TYPE = /^application\/grpc(?:\+proto)?$/i;
/** Format of grpc-timeout (gRPC over HTTP/2, "Timeout"): an integer and its unit. */
const TIMEOUT = /^(\d{1,8})([HMSmun])$/;
const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 0.001, n: 0.000_001 };

/** The response to a request that is not gRPC. */
interface HttpRefusal {
  readonly fields: Fields;
  readonly body: string;
}

/**
 * The response to a request that is not gRPC; undefined if the request is gRPC. The specification of gRPC over HTTP/2
 * asks for status 415 if the content type is wrong.
 */
export function httpRefusal(fields: RequestFields): HttpRefusal | undefined {
  if (fields[":method"] !== "POST") return refusal({ ":status": "405", allow: "POST" });
  if (!CONTENT_TYPE.test(fields["content-type"] ?? "")) {
    return refusal({ ":status": "415", "accept-post": "application/grpc, application/grpc+proto" });
  }
  return undefined;
}

function refusal(fields: Fields): HttpRefusal {
  const body = "This is a gRPC service: send POST with content-type application/grpc.\n";
  return { fields: { ...fields, "content-type": "text/plain", "content-length": String(body.length) }, body };
}

/**
 * Value of grpc-timeout in milliseconds; undefined if the request has none. Throws AgentError if the value is
 * malformed.
 */
export function requestTimeoutMs(fields: RequestFields): number | undefined {
  const value = fields["grpc-timeout"];
  if (value === undefined) return undefined;
  const [, count, unit] = TIMEOUT.exec(value) ?? [];
  if (count === undefined || unit === undefined) {
    throw new AgentError(
      "INVALID_ARGUMENT",
      "INVALID_FIELD",
      "grpc-timeout must be at most 8 digits and a unit (H, M, S, m, u or n)",
      { field: "grpc-timeout" },
    );
  }
  return Number(count) * (UNIT_MS[unit] as number);
}

/** Rejects a request whose messages may be compressed. Throws AgentError. */
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
