import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Reason, SpawnError, type SpawnStep, type StatusName } from "../../../src/agent/domain/index.ts";
import { startFailure } from "../../../src/agent/session/start-failure.ts";

describe("a command that could not be started", () => {
  const cases: readonly [SpawnStep, string, StatusName, Reason][] = [
    ["execve", "ENOENT", "NOT_FOUND", "EXEC_NOT_FOUND"],
    ["execve", "ENOTDIR", "NOT_FOUND", "EXEC_NOT_FOUND"],
    ["execve", "EACCES", "PERMISSION_DENIED", "EXEC_PERMISSION_DENIED"],
    ["execve", "ENOEXEC", "FAILED_PRECONDITION", "EXEC_BAD_FORMAT"],
    ["execve", "E2BIG", "RESOURCE_EXHAUSTED", "EXEC_ARGS_TOO_LONG"],
    ["execve", "ETXTBSY", "FAILED_PRECONDITION", "EXEC_TEXT_BUSY"],
    ["execve", "EIO", "FAILED_PRECONDITION", "EXEC_SETUP_FAILED"],
    ["chdir", "ENOENT", "NOT_FOUND", "EXEC_BAD_CWD"],
    ["chdir", "EACCES", "PERMISSION_DENIED", "EXEC_BAD_CWD"],
    ["chdir", "ESTALE", "FAILED_PRECONDITION", "EXEC_BAD_CWD"],
    ["setuid", "EPERM", "PERMISSION_DENIED", "EXEC_BAD_USER"],
    ["clone", "EAGAIN", "RESOURCE_EXHAUSTED", "EXEC_RESOURCE_LIMIT"],
    ["prepare", "EMFILE", "RESOURCE_EXHAUSTED", "EXEC_RESOURCE_LIMIT"],
    ["terminal", "ENOENT", "FAILED_PRECONDITION", "EXEC_SETUP_FAILED"],
    ["killed", "ECANCELED", "CANCELLED", "CANCELLED"],
    ["ctty", "EPERM", "INTERNAL", "EXEC_SETUP_FAILED"],
  ];
  for (const [step, errno, status, reason] of cases) {
    it(`is ${status} ${reason} when ${step} gives ${errno}`, () => {
      const error = startFailure(new SpawnError(step, errno), "/bin/x", "/dir");
      assert.equal(error.status, status);
      assert.equal(error.reason, reason);
      assert.deepEqual(error.metadata, { step, errno, path: step === "chdir" ? "/dir" : "/bin/x" });
      assert.ok(error.message.includes(errno));
    });
  }
});
