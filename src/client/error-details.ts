import { fromBinary } from "@bufbuild/protobuf";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { ErrorInfoSchema } from "../gen/google/rpc/error_details_pb.ts";

const ERROR_INFO_TYPE = "type.googleapis.com/google.rpc.ErrorInfo";

/** What a google.rpc.Status says. */
export interface ErrorDetails {
  /** Exact, where grpc-message may have lost characters to its encoding. */
  readonly message: string | undefined;
  /** Undefined without an ErrorInfo. */
  readonly reason: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * Reads the value of grpc-status-details-bin: a google.rpc.Status (code = 1, message = 2, details = 3). Undefined when
 * it is malformed: the status itself is still worth reporting.
 */
export function readErrorDetails(bytes: Uint8Array): ErrorDetails | undefined {
  let message: string | undefined;
  let reason: string | undefined;
  let metadata: Readonly<Record<string, string>> = {};
  try {
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [field, wireType] = reader.tag();
      if (field === 2) {
        message = reader.string();
      } else if (field === 3) {
        const detail = fromBinary(AnySchema, reader.bytes());
        if (detail.typeUrl === ERROR_INFO_TYPE) ({ reason, metadata } = fromBinary(ErrorInfoSchema, detail.value));
      } else {
        reader.skip(wireType, field);
      }
    }
    return { message, reason, metadata };
  } catch {
    return undefined;
  }
}
