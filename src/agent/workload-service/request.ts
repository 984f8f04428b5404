import { fromBinary, fromJsonString } from "@bufbuild/protobuf";
import { messageOf } from "../../shared/errors.ts";
import { DeclareIdleRequestSchema } from "../../shared/gen/svc/guest/v1alpha1/workload_pb.ts";

/**
 * Returns undefined if the bytes are a valid DeclareIdleRequest, otherwise the problem. Unknown fields are allowed,
 * because a newer version may have them.
 */
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
