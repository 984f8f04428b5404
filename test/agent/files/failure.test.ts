import assert from "node:assert/strict";
import { test } from "node:test";
import { fileFailure, wrongType } from "../../../src/agent/files/failure.ts";
import { FileSystemError } from "../../../src/agent/domain/index.ts";

const CASES = [
  ["open", "ENOENT", "NOT_FOUND", "PATH_NOT_FOUND"],
  ["stat", "ENOTDIR", "NOT_FOUND", "PATH_NOT_FOUND"],
  ["stat", "ELOOP", "NOT_FOUND", "PATH_NOT_FOUND"],
  ["create", "ENOENT", "NOT_FOUND", "PATH_NOT_FOUND"],
  ["open", "EACCES", "PERMISSION_DENIED", "PATH_PERMISSION_DENIED"],
  ["chown", "EPERM", "PERMISSION_DENIED", "PATH_PERMISSION_DENIED"],
  ["create", "EROFS", "PERMISSION_DENIED", "PATH_PERMISSION_DENIED"],
  ["place", "EBUSY", "FAILED_PRECONDITION", "FILE_ERROR"],
  ["chown", "EINVAL", "FAILED_PRECONDITION", "FILE_ERROR"],
  ["place", "ENOTSUP", "FAILED_PRECONDITION", "FILE_ERROR"],
  ["place", "EISDIR", "FAILED_PRECONDITION", "NOT_A_REGULAR_FILE"],
  ["stat", "ENAMETOOLONG", "INVALID_ARGUMENT", "INVALID_FIELD"],
  ["write", "ENOSPC", "RESOURCE_EXHAUSTED", "NO_SPACE"],
  ["sync", "EDQUOT", "RESOURCE_EXHAUSTED", "NO_SPACE"],
  ["write", "EFBIG", "RESOURCE_EXHAUSTED", "NO_SPACE"],
  ["open", "EMFILE", "RESOURCE_EXHAUSTED", "FILE_ERROR"],
  ["read", "EIO", "INTERNAL", "FILE_ERROR"],
  ["sync_folder", "EIO", "INTERNAL", "FILE_ERROR"],
  ["read", "E999", "INTERNAL", "FILE_ERROR"],
] as const;

for (const [step, errno, status, reason] of CASES) {
  test(`${errno} at the step ${step} is ${status}, ${reason}, with path, step and errno in the details`, () => {
    const error = fileFailure(new FileSystemError(step, errno), "write", "/some/path");
    assert.deepEqual([error.status, error.reason], [status, reason]);
    assert.deepEqual(
      [error.metadata["path"], error.metadata["step"], error.metadata["errno"]],
      ["/some/path", step, errno],
    );
    assert.match(error.message, new RegExp(`^cannot write "/some/path": .+ \\(${step}: ${errno}\\)$`));
  });
}

test("what is of a wrong type is named by its type", () => {
  const error = wrongType("read", "/dev/tty", "character_device", "regular file");
  assert.equal(error.reason, "NOT_A_REGULAR_FILE");
  assert.match(error.message, /no regular file but a character device/);
  assert.deepEqual(error.metadata, { path: "/dev/tty", type: "character_device" });
});
