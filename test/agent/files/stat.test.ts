import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { link, lutimes, mkdir, stat, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { describe, it, test } from "node:test";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import { FileSystemError } from "../../../src/agent/domain/index.ts";
import { fileFailure } from "../../../src/agent/files/calls/failure.ts";
import { FileType } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { failureOf, FileCalls, testDirectory, failsWith } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";

const directory = forAllTests(await testDirectory());
const agent = forAllTests(await startAgent());
const files = forAllTests(new FileCalls(agent));

function nanoseconds(time: Timestamp | undefined): bigint {
  assert.ok(time);
  return time.seconds * 1_000_000_000n + BigInt(time.nanos);
}

describe("StatPath", () => {
  it("StatPath returns all attributes of stat(2), including nanoseconds", NEEDS_ROOT, async () => {
    const path = directory.at("file");
    await writeFile(path, "12345", { mode: 0o604 });
    await link(path, directory.at("other-name"));
    spawnSync("touch", ["-d", "2001-02-03T04:05:06.123456789Z", path]);
    const told = await files.stat(path);
    const is = await stat(path, { bigint: true });
    assert.deepEqual(
      [told.type, told.size, told.mode, told.uid, told.gid, told.inode, told.links],
      [FileType.REGULAR, 5n, 0o604, 0, 0, is.ino, 2n],
    );
    assert.equal(nanoseconds(told.mtime), 981_173_106_123_456_789n);
    assert.deepEqual([nanoseconds(told.atime), nanoseconds(told.ctime)], [is.atimeNs, is.ctimeNs]);
    assert.equal(told.linkTarget.length, 0);
  });

  it("StatPath returns every file type", NEEDS_ROOT, async () => {
    const socket = createServer().listen(directory.at("socket"));
    await once(socket, "listening");
    await mkdir(directory.at("directory"));
    spawnSync("mkfifo", [directory.at("fifo")]);
    spawnSync("mknod", [directory.at("disk"), "b", "7", "250"]);
    await symlink("directory", directory.at("link"));
    for (const [path, noFollow, type] of [
      [directory.at("directory"), false, FileType.DIRECTORY],
      [directory.at("fifo"), false, FileType.FIFO],
      [directory.at("socket"), false, FileType.SOCKET],
      [directory.at("disk"), false, FileType.BLOCK_DEVICE],
      ["/dev/null", false, FileType.CHARACTER_DEVICE],
      [directory.at("link"), true, FileType.SYMLINK],
      [directory.at("link"), false, FileType.DIRECTORY],
    ] as const) {
      assert.equal((await files.stat(path, { noFollow })).type, type, path);
    }
    socket.close();
  });

  it("StatPath with `noFollow` returns a link's own attributes and raw target", async () => {
    const target = Buffer.from([0x61, 0xff, 0x2f, 0xc3, 0x28]);
    await symlink(target, directory.at("odd"));
    await lutimes(directory.at("odd"), 10, 20);
    const told = await files.stat(directory.at("odd"), { noFollow: true });
    assert.ok(target.equals(told.linkTarget));
    assert.deepEqual([told.type, told.size, told.mtime?.seconds], [FileType.SYMLINK, 5n, 20n]);
    assert.equal((await failureOf(files.stat(directory.at("odd")))).reason, "PATH_NOT_FOUND");
  });
});

describe("a path", () => {
  it("a path may contain every character except NUL", async () => {
    const every = String.fromCodePoint(...Array.from({ length: 0x7f }, (_, i) => i + 1)).replace("/", "");
    for (const name of [every, " ", "-rf", "...", "日本語 🚀", "é", "e\u0301", "a".repeat(255), "%2e%2e", "\\", "\n"]) {
      await files.write({ path: directory.at(name) }, name);
      assert.equal((await files.read(directory.at(name))).data.toString(), name);
      assert.equal((await files.stat(directory.at(name))).size, BigInt(Buffer.byteLength(name)));
      assert.ok((await directory.names()).includes(name), JSON.stringify(name));
    }
  });

  it("a path may be as long as PATH_MAX, but not longer", async () => {
    const fill = (length: number): string => {
      let path = directory.path;
      while (length - path.length > 200) path += `/${"d".repeat(150)}`;
      return `${path}/${"e".repeat(length - path.length - 3)}/f`;
    };
    const longest = fill(4095);
    for (const content of ["far", "farther"]) {
      await files.write({ path: longest, createParents: true }, content);
      assert.equal((await files.read(longest)).data.toString(), content);
    }
    const tooLong = fill(4096);
    for (const call of [
      () => files.stat(tooLong),
      () => files.read(tooLong),
      () => files.write({ path: tooLong }, "x"),
    ])
      await failsWith(call(), status.INVALID_ARGUMENT, "INVALID_FIELD", { errno: "ENAMETOOLONG" });
  });

  it("the error for an unresolvable path has reason PATH_NOT_FOUND, the errno and the path", async () => {
    await writeFile(directory.at("plain"), "");
    await symlink("circle", directory.at("circle"));
    for (const [name, errno] of [
      ["missing", "ENOENT"],
      ["missing/below", "ENOENT"],
      ["plain/below", "ENOTDIR"],
      ["circle", "ELOOP"],
    ] as const) {
      for (const call of [() => files.stat(directory.at(name)), () => files.read(directory.at(name))]) {
        const details = { errno, path: directory.at(name) };
        const { message } = await failsWith(call(), status.NOT_FOUND, "PATH_NOT_FOUND", details);
        assert.ok(message.includes(JSON.stringify(directory.at(name))));
      }
    }
  });
});

test("rare file errors have a status, reason, path, step and errno", () => {
  for (const [step, errno, code, reason] of [
    ["chown", "EPERM", "PERMISSION_DENIED", "PATH_PERMISSION_DENIED"],
    ["chown", "EINVAL", "FAILED_PRECONDITION", "FILE_ERROR"],
    ["place", "ENOTSUP", "FAILED_PRECONDITION", "FILE_ERROR"],
    ["place", "EISDIR", "FAILED_PRECONDITION", "NOT_A_REGULAR_FILE"],
    ["sync", "EDQUOT", "RESOURCE_EXHAUSTED", "NO_SPACE"],
    ["write", "EFBIG", "RESOURCE_EXHAUSTED", "NO_SPACE"],
    ["open", "EMFILE", "RESOURCE_EXHAUSTED", "FILE_ERROR"],
    ["sync_folder", "EIO", "INTERNAL", "FILE_ERROR"],
    ["read", "E999", "INTERNAL", "FILE_ERROR"],
  ] as const) {
    const error = fileFailure(new FileSystemError(step, errno), "write", "/some/path");
    assert.deepEqual([error.status, error.reason], [code, reason], errno);
    assert.partialDeepStrictEqual(error.metadata, { path: "/some/path", step, errno });
    assert.match(error.message, new RegExp(`^cannot write "/some/path": .+ \\(${step}: ${errno}\\)$`));
  }
});
