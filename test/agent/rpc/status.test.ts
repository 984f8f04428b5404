import assert from "node:assert/strict";
import { test } from "node:test";
import { Code } from "@connectrpc/connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import { AgentError, type StatusName } from "../../../src/agent/domain/index.ts";
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
