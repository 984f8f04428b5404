import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { readErrorDetails } from "../../../src/node/client/errors.ts";
import { ErrorInfoSchema } from "../../../src/shared/gen/google/rpc/error_details_pb.ts";

/** A google.rpc.Status with details of the given types. */
function status(message: string, details: readonly { typeUrl: string; value: Uint8Array }[]): Uint8Array {
  const writer = new BinaryWriter().tag(1, WireType.Varint).int32(5).tag(2, WireType.LengthDelimited).string(message);
  for (const detail of details) {
    writer.tag(3, WireType.LengthDelimited).bytes(toBinary(AnySchema, create(AnySchema, detail)));
  }
  return writer.finish();
}

const info = {
  typeUrl: "type.googleapis.com/google.rpc.ErrorInfo",
  value: toBinary(
    ErrorInfoSchema,
    create(ErrorInfoSchema, { reason: "NO_SPACE", domain: "svc.guest", metadata: { path: "/x" } }),
  ),
};

describe("readErrorDetails", () => {
  test("finds message, reason and metadata among other details", () => {
    const other = { typeUrl: "type.googleapis.com/google.rpc.DebugInfo", value: Buffer.from([1, 2, 3]) };
    assert.deepEqual(readErrorDetails(status("100 % größer", [other, info])), {
      message: "100 % größer",
      reason: "NO_SPACE",
      metadata: { path: "/x" },
    });
  });

  test("does without an ErrorInfo", () => {
    assert.deepEqual(readErrorDetails(status("plain", [])), { message: "plain", reason: undefined, metadata: {} });
  });

  test("gives nothing for malformed bytes", () => {
    assert.equal(readErrorDetails(Buffer.from([0x12, 0xff, 0x01])), undefined);
    assert.equal(readErrorDetails(status("cut", [info]).subarray(0, -4)), undefined);
  });
});
