import assert from "node:assert/strict";
import { test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import { AgentError, type StatusName } from "../../../src/agent/domain/index.ts";
import { ErrorInfoSchema } from "../../../src/shared/gen/google/rpc/error_details_pb.ts";
import { errorFields } from "../../../src/agent/rpc/status.ts";

const STATUSES: Readonly<Record<StatusName, Code>> = {
  CANCELLED: Code.Canceled,
  INVALID_ARGUMENT: Code.InvalidArgument,
  DEADLINE_EXCEEDED: Code.DeadlineExceeded,
  NOT_FOUND: Code.NotFound,
  ALREADY_EXISTS: Code.AlreadyExists,
  PERMISSION_DENIED: Code.PermissionDenied,
  RESOURCE_EXHAUSTED: Code.ResourceExhausted,
  FAILED_PRECONDITION: Code.FailedPrecondition,
  ABORTED: Code.Aborted,
  OUT_OF_RANGE: Code.OutOfRange,
  UNIMPLEMENTED: Code.Unimplemented,
  INTERNAL: Code.Internal,
  UNAVAILABLE: Code.Unavailable,
  DATA_LOSS: Code.DataLoss,
  UNAUTHENTICATED: Code.Unauthenticated,
};

test("every status has the number that another implementation gives it", () => {
  for (const [status, code] of Object.entries(STATUSES)) {
    const fields = errorFields(new AgentError(status as StatusName, "INTERNAL", "any"));
    assert.equal(fields["grpc-status"], String(code), status);
  }
});

test("another implementation reads the status, the message and the details", () => {
  const metadata = { path: "/tmp/ü", errno: "ENOENT" };
  const fields = errorFields(new AgentError("NOT_FOUND", "PATH_NOT_FOUND", "no /tmp/ü: 100 %\n", metadata));
  const error = findTrailerError(new Headers(fields));
  assert.ok(error instanceof ConnectError);
  assert.equal(error.code, Code.NotFound);
  assert.equal(error.rawMessage, "no /tmp/ü: 100 %\n");
  const [detail] = error.details;
  assert.ok(detail !== undefined && "type" in detail);
  assert.equal(detail.type, "google.rpc.ErrorInfo");
  const info = fromBinary(ErrorInfoSchema, detail.value);
  assert.equal(info.reason, "PATH_NOT_FOUND");
  assert.equal(info.domain, "svc.guest");
  assert.deepEqual(info.metadata, metadata);
});

test("text that is too long or no Unicode becomes something that can be sent", () => {
  const fields = errorFields(new AgentError("INTERNAL", "INTERNAL", `\udc00${"x".repeat(100_000)}`));
  assert.ok((fields["grpc-message"] ?? "").length < 10_000);
  assert.match(decodeURIComponent(fields["grpc-message"] ?? ""), /^\ufffdx+…$/);
});

test("a status takes less than 6 KiB, whatever its texts are made of", () => {
  for (const letter of ["x", "ü", "€", "\u{1f600}", "\n", "%", "\ud800"]) {
    const text = letter.repeat(8_000);
    const fields = errorFields(new AgentError("NOT_FOUND", "PATH_NOT_FOUND", text, { path: text, target: text }));
    const sizeBytes = Object.entries(fields).reduce((sum, [name, value]) => sum + name.length + value.length, 0);
    assert.ok(sizeBytes < 6 * 1024, `${sizeBytes} bytes of ${JSON.stringify(letter)}`);
    assert.ok(sizeBytes > 3 * 1024, `only ${sizeBytes} bytes are left of ${JSON.stringify(letter)}`);
    assert.equal(findTrailerError(new Headers(fields))?.code, Code.NotFound);
  }
});
