import { create, fromBinary } from "@bufbuild/protobuf";
import { InterceptingCall, type Interceptor, Metadata, status as statusCodes } from "@grpc/grpc-js";
import { GuestError } from "../../../../src/node/client/index.ts";
import type { Code } from "./gen/connectrpc/conformance/v1/config_pb.ts";
import {
  type Error as WantedError,
  ErrorSchema,
  type Header,
  HeaderSchema,
} from "./gen/connectrpc/conformance/v1/service_pb.ts";

const DETAILS_FIELD = "grpc-status-details-bin";
const BINARY = /-bin$/i;

/** The parts of an answer that the library does not return: header fields and trailers, as grpc-js passes them on. */
export class Seen {
  headers: Metadata = new Metadata();
  trailers: Metadata = new Metadata();

  /** For a channel of one call, which also sends these header fields. */
  interceptor(requestHeaders: readonly Header[]): Interceptor {
    return (options, nextCall) =>
      new InterceptingCall(nextCall(options), {
        start: (metadata, _listener, next) => {
          for (const { name, value } of requestHeaders)
            for (const each of value) metadata.add(name, BINARY.test(name) ? Buffer.from(each, "base64") : each);
          next(metadata, {
            onReceiveMetadata: (headers, tell) => {
              this.headers = headers;
              tell(headers);
            },
            onReceiveStatus: (status, tell) => {
              this.trailers = status.metadata;
              tell(status);
            },
          });
        },
      });
  }
}

/** Metadata as the suite writes it: binary values in base64 without padding. */
export function headersOf(metadata: Metadata): Header[] {
  const text = (value: string | Buffer): string =>
    typeof value === "string" ? value : value.toString("base64").replace(/=+$/, "");
  return Object.entries(metadata.toJSON()).map(([name, values]) =>
    create(HeaderSchema, { name, value: values.map(text) }),
  );
}

/**
 * A failed call's error, as the library reports it; the details, of which it reads only the ErrorInfo, are the
 * trailers'. They are in a google.rpc.Status, whose fields are those of the suite's Error.
 */
export function errorOf(failure: unknown, trailers: Metadata): WantedError {
  if (!(failure instanceof GuestError)) throw failure;
  const [status] = trailers.get(DETAILS_FIELD);
  const { details } = fromBinary(ErrorSchema, status instanceof Buffer ? status : Buffer.alloc(0));
  return create(ErrorSchema, {
    code: statusCodes[failure.status] as number as Code,
    message: failure.message,
    details,
  });
}
