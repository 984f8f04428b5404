import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs/promises";
import { describe, it } from "node:test";
import { create } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import { FileType } from "../../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { TreeCalls } from "../../../fixtures/file-tree.ts";
import { failureOf, testDirectory, testMount, besides, failsWith } from "../../../fixtures/files.ts";
import { activityNs, clientOf } from "../../../fixtures/guest-client.ts";
import { NEEDS_NAMESPACES } from "../../../fixtures/namespaces.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";

const agent = forAllTests(await startAgent());
const calls = forAllTests(new TreeCalls(agent));

async function reasonOf(call: Promise<unknown>): Promise<string | undefined> {
  return (await failureOf(call)).reason;
}

describe("MakeFolder", () => {
  it("MakeFolder sets a new directory's mode and owner, and leaves an existing one unchanged", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    assert.equal(await calls.makeFolder({ path: directory.at("plain") }), true);
    assert.equal((await fs.stat(directory.at("plain"))).mode & 0o7777, 0o755);
    const path = directory.at("own");
    assert.equal(await calls.makeFolder({ path, mode: 0o1777, uid: 1000, gid: 1001 }), true);
    const { mode, uid, gid } = await fs.stat(path);
    assert.deepEqual([mode & 0o7777, uid, gid], [0o1777, 1000, 1001]);
    assert.equal(await calls.makeFolder({ path: `${path}/`, mode: 0o700 }), false);
    assert.equal((await fs.stat(path)).mode & 0o7777, 0o1777);
    assert.equal(await reasonOf(calls.makeFolder({ path, exclusive: true })), "ALREADY_EXISTS");
    await fs.writeFile(directory.at("file"), "");
    assert.equal(await reasonOf(calls.makeFolder({ path: directory.at("file") })), "NOT_A_FOLDER");
    assert.equal(await reasonOf(calls.makeFolder({ path: directory.at("file/below") })), "PATH_NOT_FOUND");
  });

  it("MakeFolder creates parents only on request and removes them on failure", async () => {
    await using directory = await testDirectory();
    assert.equal(await reasonOf(calls.makeFolder({ path: directory.at("a/b/c") })), "PATH_NOT_FOUND");
    assert.deepEqual(await directory.names(), []);
    assert.equal(await calls.makeFolder({ path: "a/b/c", beneath: directory.path, parents: true, mode: 0o700 }), true);
    assert.equal((await fs.stat(directory.at("a/b"))).mode & 0o777, 0o755);
    const path = directory.at(`d/e/${"x".repeat(256)}`);
    assert.equal(await reasonOf(calls.makeFolder({ path, parents: true })), "INVALID_FIELD");
    assert.deepEqual(await directory.names(), ["a"]);
  });

  it("a new directory gets the workload's user and the group of a setgid parent", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await using owned = await startAgent({ process: { user: "1234:1235" } });
    using client = new TreeCalls(owned);
    await client.makeFolder({ path: directory.at("plain") });
    await fs.chown(directory.at("plain"), 1234, 99);
    await fs.chmod(directory.at("plain"), 0o2755);
    await client.makeFolder({ path: directory.at("plain/below/deeper"), parents: true });
    for (const name of ["plain/below", "plain/below/deeper"]) {
      const { uid, gid, mode } = await fs.stat(directory.at(name));
      assert.deepEqual([uid, gid, mode & 0o7777], [1234, 99, 0o2755], name);
    }
  });

  it("MakeFolder does not chown a directory that has replaced the new one", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await fs.mkdir(directory.at("inside/secret"), { recursive: true, mode: 0o700 });
    await fs.writeFile(directory.at("inside/secret/key"), "root's");
    await fs.chown(directory.at("inside"), 1000, 1000);
    const swap = `cd "$1" || exit 1
      while :; do mv -T made away 2>/dev/null; mv -T secret made 2>/dev/null; mv -T made secret 2>/dev/null; rmdir away 2>/dev/null; done`;
    const asWorkload = ["--reuid=1000", "--clear-groups", "bash", "-c", swap, "bash", directory.at("inside")];
    await using swapper = besides("setpriv", ...asWorkload);
    for (let attempt = 0; attempt < 300; attempt++)
      await calls
        .makeFolder({ path: "made", beneath: directory.at("inside"), uid: 1000, gid: 1000 })
        .catch(() => undefined);
    await swapper[Symbol.asyncDispose]();
    const holders = (await fs.readdir(directory.at("inside"))).filter((name) => name === "secret" || name === "made");
    for (const name of holders) {
      const found = await fs.readdir(directory.at(`inside/${name}`));
      if (found.includes("key")) assert.equal((await fs.stat(directory.at(`inside/${name}`))).uid, 0);
    }
  });
});

describe("MakeLink", () => {
  it("MakeLink stores its target byte for byte and never replaces an existing entry", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    const target = Buffer.from([0x2e, 0x2e, 0x2f, 0xff]);
    await calls.makeLink({ path: directory.at("link"), target, uid: 1000, gid: 1001 });
    assert.deepEqual(await fs.readlink(directory.at("link"), "buffer"), target);
    const { uid, gid } = await fs.lstat(directory.at("link"));
    assert.deepEqual([uid, gid], [1000, 1001]);
    assert.equal(await reasonOf(calls.makeLink({ path: directory.at("link"), target: "x" })), "ALREADY_EXISTS");
    assert.equal(await reasonOf(calls.makeLink({ path: directory.at("other"), target: "" })), "INVALID_FIELD");
    assert.equal(
      await reasonOf(calls.makeLink({ path: "../out", target: "x", beneath: directory.path })),
      "PATH_ESCAPES",
    );
  });
});

describe("Rename", () => {
  it("Rename replaces files and empty directories like mv -T, without following links", async () => {
    await using directory = await testDirectory();
    await fs.mkdir(directory.at("sub/full"), { recursive: true });
    await fs.mkdir(directory.at("empty"));
    for (const name of ["one", "two", "sub/full/file"]) await fs.writeFile(directory.at(name), name);
    await fs.symlink("sub", directory.at("link"));
    await calls.rename({ path: directory.at("one"), newPath: directory.at("two") });
    assert.equal(await fs.readFile(directory.at("two"), "utf8"), "one");
    await calls.rename({ path: "two", newPath: "link/moved", beneath: directory.path });
    assert.equal(await fs.readFile(directory.at("sub/moved"), "utf8"), "one");
    await calls.rename({ path: directory.at("link"), newPath: directory.at("sub/link") });
    assert.equal(await fs.readlink(directory.at("sub/link")), "sub");
    await calls.rename({ path: directory.at("sub/full/"), newPath: directory.at("empty") });
    assert.deepEqual(await fs.readdir(directory.at("empty")), ["file"]);
    await calls.rename({
      path: directory.at("empty"),
      newPath: Buffer.concat([Buffer.from(`${directory.path}/`), Buffer.from([0xff])]),
    });
    assert.deepEqual((await fs.readdir(directory.path, "latin1")).toSorted(), ["sub", "\u00ff"]);
  });

  it("a Rename that cannot be done changes nothing and returns the reason", async () => {
    await using directory = await testDirectory();
    await fs.mkdir(directory.at("full/below"), { recursive: true });
    await fs.mkdir(directory.at("empty"));
    for (const name of ["one", "two"]) await fs.writeFile(directory.at(name), name);
    await fs.symlink("gone", directory.at("dangling"));
    for (const [path, newPath, exclusive, reason] of [
      ["one", "two", true, "ALREADY_EXISTS"],
      ["one", "dangling", true, "ALREADY_EXISTS"],
      ["empty", "full", false, "FOLDER_NOT_EMPTY"],
      ["empty", "one", false, "NOT_A_FOLDER"],
      ["one", "empty", false, "NOT_A_REGULAR_FILE"],
      ["full", "full/below/it", false, "FILE_ERROR"],
      ["gone", "other", false, "PATH_NOT_FOUND"],
      ["one", "no/directory", false, "PATH_NOT_FOUND"],
      ["one", ".", false, "INVALID_FIELD"],
      [".", "other", false, "INVALID_FIELD"],
      ["one", "../out", false, "PATH_ESCAPES"],
    ] as const) {
      assert.equal(
        await reasonOf(calls.rename({ path, newPath, exclusive, beneath: directory.path })),
        reason,
        newPath,
      );
    }
    assert.equal(await fs.readFile(directory.at("two"), "utf8"), "two");
    assert.deepEqual((await directory.names()).toSorted(), ["dangling", "empty", "full", "one", "two"]);
  });

  it("Rename to another file system fails with CROSS_DEVICE", NEEDS_NAMESPACES, async () => {
    await using mount = await testMount("tmpfs", () => "mode=0755");
    await using directory = await testDirectory();
    await fs.writeFile(directory.at("file"), "stays");
    const moving = calls.rename({ path: directory.at("file"), newPath: mount.at("file") });
    await failsWith(moving, status.FAILED_PRECONDITION, "CROSS_DEVICE", { errno: "EXDEV" });
    assert.equal(await reasonOf(calls.rename({ path: mount.path, newPath: `${mount.path}-moved` })), "MOUNT_POINT");
    assert.equal(await fs.readFile(directory.at("file"), "utf8"), "stays");
  });
});

describe("a rename on an overlayfs", () => {
  it(
    "renaming a directory of an overlayfs's lower layer fails with an error naming overlayfs",
    NEEDS_NAMESPACES,
    async () => {
      await using mount = await testMount("tmpfs", () => "mode=0755");
      for (const name of ["lower/app", "upper", "work", "merged"]) await fs.mkdir(mount.at(name), { recursive: true });
      const layers = `lowerdir=${mount.at("lower")},upperdir=${mount.at("upper")},workdir=${mount.at("work")}`;
      assert.equal(spawnSync("mount", ["-t", "overlay", "overlay", "-o", layers, mount.at("merged")]).status, 0);
      try {
        const moving = calls.rename({ path: mount.at("merged/app"), newPath: mount.at("merged/app.old") });
        const { message } = await failsWith(moving, status.FAILED_PRECONDITION, "CROSS_DEVICE", { errno: "EXDEV" });
        assert.match(message, /the directory is part of the image, and overlayfs cannot rename it/);
      } finally {
        spawnSync("umount", [mount.at("merged")]);
      }
    },
  );
});

describe("SetAttributes", () => {
  it("SetAttributes sets owner, mode and time and returns the new attributes", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await fs.writeFile(directory.at("file"), "");
    await fs.mkdir(directory.at("sub"));
    spawnSync("mkfifo", [directory.at("fifo")]);
    for (const name of ["file", "sub", "fifo"]) {
      for (const seconds of [-86_400n, 0n, 1_700_000_000n, 5_000_000_000n]) {
        const mtime = create(TimestampSchema, { seconds, nanos: 123_456_789 });
        const told = await calls.setAttributes({ path: directory.at(name), mode: 0o4711, uid: 1000, gid: 1001, mtime });
        const { mode, uid, gid, mtimeNs } = await fs.lstat(directory.at(name), { bigint: true });
        const ns = seconds * 1_000_000_000n + 123_456_789n;
        assert.deepEqual([Number(mode) & 0o7777, uid, gid, mtimeNs], [0o4711, 1000n, 1001n, ns]);
        assert.partialDeepStrictEqual(told, { mode: 0o4711, uid: 1000, gid: 1001, mtime });
      }
    }
    const told = await calls.setAttributes({ path: "file", beneath: directory.path, mode: 0o600 });
    assert.deepEqual([told.mode, told.uid, told.gid], [0o600, 1000, 1001]);
    assert.equal(told.mtime?.seconds, 5_000_000_000n, "what is not given stays");
  });

  it("SetAttributes changes a link itself unless `follow` is set", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await fs.writeFile(directory.at("file"), "", { mode: 0o644 });
    await fs.symlink("file", directory.at("link"));
    const path = directory.at("link");
    const mtime = create(TimestampSchema, { seconds: 1_000n });
    const own = await calls.setAttributes({ path, uid: 1000, mtime });
    assert.deepEqual([own.type, own.uid, own.mtime?.seconds], [FileType.SYMLINK, 1000, 1_000n]);
    assert.equal(Buffer.from(own.linkTarget).toString(), "file");
    assert.equal((await fs.stat(directory.at("file"))).uid, 0);
    assert.equal(await reasonOf(calls.setAttributes({ path, mode: 0o600 })), "FILE_ERROR");
    assert.equal((await fs.stat(directory.at("file"))).mode & 0o777, 0o644);
    const followed = await calls.setAttributes({ path, mode: 0o600, follow: true });
    assert.deepEqual([followed.type, followed.mode], [FileType.REGULAR, 0o600]);
  });

  it("SetAttributes rejects empty requests, invalid values and invalid paths", async () => {
    await using directory = await testDirectory();
    const path = directory.path;
    for (const [request, reason] of [
      [{ path }, "INVALID_FIELD"],
      [{ path, mode: 0o10000 }, "INVALID_FIELD"],
      [{ path, uid: 2 ** 32 - 1 }, "INVALID_FIELD"],
      [{ path, mtime: create(TimestampSchema, { seconds: 2n ** 62n }) }, "INVALID_FIELD"],
      [{ path: directory.at("gone"), mode: 0 }, "PATH_NOT_FOUND"],
      [{ path: "..", beneath: path, mode: 0o777 }, "PATH_ESCAPES"],
    ] as const)
      assert.equal(await reasonOf(calls.setAttributes(request)), reason);
  });

  it("FileTree calls stay in `beneath` even if symlinks replace directories meanwhile", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    const inside = directory.at("inside");
    for (const name of ["inside", "outside"]) await fs.mkdir(directory.at(name));
    await fs.writeFile(directory.at("outside/file"), "", { mode: 0o600 });
    const swap = `cd "$1/inside" || exit 1
      while :; do mkdir a 2>/dev/null; : > a/file 2>/dev/null; mv -T a away 2>/dev/null; ln -s ../outside a 2>/dev/null; rm -rf a away; done`;
    await using _swapper = besides("bash", "-c", swap, "bash", directory.path);
    for (let attempt = 0; attempt < 300; attempt++) {
      const at = { path: "a/file", beneath: inside };
      await calls.setAttributes({ ...at, mode: 0o777, follow: attempt % 2 === 0 }).catch(() => undefined);
      await calls.rename({ ...at, newPath: "a/renamed" }).catch(() => undefined);
      await calls.makeLink({ path: "a/made", target: "x", beneath: inside }).catch(() => undefined);
      await calls.makeFolder({ path: "a/directory", beneath: inside }).catch(() => undefined);
    }
    assert.deepEqual(await fs.readdir(directory.at("outside")), ["file"]);
    assert.equal((await fs.stat(directory.at("outside/file"))).mode & 0o777, 0o600);
  });
});

describe("every call of FileTree", () => {
  it("every FileTree call counts as user activity", async () => {
    await using directory = await testDirectory();
    using client = clientOf(agent);
    await fs.writeFile(directory.at("file"), "");
    await fs.link(directory.at("file"), directory.at("other"));
    for (const call of [
      () => calls.list({ path: directory.path }),
      () => calls.makeFolder({ path: directory.at("sub") }),
      () => calls.makeLink({ path: directory.at("link"), target: "x" }),
      () => calls.rename({ path: directory.at("link"), newPath: directory.at("moved") }),
      () => calls.setAttributes({ path: directory.at("file"), mode: 0o600 }),
      () => calls.remove({ path: directory.at("other") }),
    ]) {
      const earlier = await activityNs(client);
      assert.equal(await activityNs(client), earlier);
      await call();
      assert.ok((await activityNs(client)) > earlier, call.toString());
    }
  });
});
