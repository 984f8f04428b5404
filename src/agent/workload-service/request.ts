import { fromBinary, fromJsonString } from "@bufbuild/protobuf";
import { messageOf } from "../../shared/errors.ts";
import { DeclareIdleRequestSchema } from "../../shared/gen/svc/guest/v1alpha1/workload_pb.ts";

/** Why the bytes are no DeclareIdleRequest, with whatever fields a newer one may have; undefined: they are one. */
export function problemOf(bytes: Uint8Array, isJson: boolean): string | undefined {
  try {
    if (isJson)
      fromJsonString(DeclareIdleRequestSchema, new TextDecoder().decode(bytes), { ignoreUnknownFields: true });
    else fromBinary(DeclareIdleRequestSchema, bytes);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}
