import { BinaryReader } from "@bufbuild/protobuf/wire";
import { type Any, AnySchema } from "@bufbuild/protobuf/wkt";
import { create, fromBinary } from "@bufbuild/protobuf";
import { InterceptingCall, type Interceptor, Metadata } from "@grpc/grpc-js";
import { GuestError } from "../../../src/node/client/index.ts";
import type { Header, Schema, WantedError } from "./schema.ts";

/** google.rpc.Status: details = 3. */
const DETAILS = 3;
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
export function headersOf(schema: Schema, metadata: Metadata): Header[] {
  return Object.entries(metadata.toJSON()).map(([name, values]) => {
    const header = create(schema.header);
    header.name = name;
    header.value = values.map((value) =>
      typeof value === "string" ? value : value.toString("base64").replace(/=+$/, ""),
    );
    return header;
  });
}

/** A failed call's error, as the library reports it; the details, of which it reads only the ErrorInfo, are the trailers'. */
export function errorOf(schema: Schema, failure: unknown, trailers: Metadata): WantedError {
  if (!(failure instanceof GuestError)) throw failure;
  const error = create(schema.error);
  error.code = failure.code;
  error.message = failure.message;
  const [status] = trailers.get(DETAILS_FIELD);
  error.details = status instanceof Buffer ? detailsOf(status) : [];
  return error;
}

function detailsOf(status: Buffer): Any[] {
  const details: Any[] = [];
  const reader = new BinaryReader(status);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === DETAILS) details.push(fromBinary(AnySchema, reader.bytes()));
    else reader.skip(wireType);
  }
  return details;
}
