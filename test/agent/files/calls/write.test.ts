import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { chmod, chown, mkdir, readFile, readlink, realpath, stat, symlink, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { create } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import {
  type WriteFileRequest,
  WriteFileRequestSchema,
} from "../../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { dataMessage, failureOf, FileCalls, headerMessage, testDirectory, failsWith } from "../../../fixtures/files.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";

const directory = forAllTests(await testDirectory());
const agent = forAllTests(await startAgent());
const files = forAllTests(new FileCalls(agent));

const sha256 = (content: Uint8Array | string): Buffer => createHash("sha256").update(content).digest();
const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o7777;
const ownerOf = async (path: string): Promise<readonly [number, number]> => {
  const { uid, gid } = await stat(path);
  return [uid, gid];
};

describe("WriteFile", () => {
  it("WriteFile creates a file and returns its size and checksum", NEEDS_ROOT, async () => {
    const response = await files.write({ path: directory.at("new") }, "some ", "content");
    assert.equal(await readFile(directory.at("new"), "utf8"), "some content");
    assert.equal(response.bytesWritten, 12n);
    assert.ok(sha256("some content").equals(response.sha256));
    assert.deepEqual([await modeOf(directory.at("new")), ...(await ownerOf(directory.at("new")))], [0o644, 0, 0]);
  });

  it("WriteFile sets the given mtime to the microsecond, or the current time", async () => {
    const path = directory.at("timed");
    for (const [seconds, nanos, ns] of [
      [1_600_000_000n, 123_456_789, 1_600_000_000_123_456_000n],
      [-1n, 500_000_000, -500_000_000n],
      [0n, 0, 0n],
    ] as const) {
      await files.write({ path, mtime: { seconds, nanos } }, "x");
      const { mtimeNs } = await stat(path, { bigint: true });
      // Within a microsecond: the time is a floating-point number on its way to the kernel.
      assert.ok(mtimeNs >= ns - 1_000n && mtimeNs <= ns + 1_000n, `${mtimeNs} for ${ns}`);
    }
    const writtenAfterMs = Date.now();
    await files.write({ path }, "x");
    assert.ok((await stat(path)).mtimeMs >= writtenAfterMs - 1_000, "without one it is now");
  });

  it("WriteFile with `sparse` replaces zeros by holes and returns the same checksum", async () => {
    const MIB = 2 ** 20;
    const some = randomBytes(5_000);
    const contents: readonly (readonly Buffer[])[] = [
      [],
      [Buffer.alloc(1)],
      [Buffer.alloc(4_096)],
      [Buffer.alloc(4 * MIB - 1), some, Buffer.alloc(4 * MIB)],
      [some, Buffer.alloc(2 * MIB), Buffer.alloc(2 * MIB), some, some],
      Array.from({ length: 300 }, (_, index) => (index % 100 === 99 ? some : Buffer.alloc(32 * 1_024 + index))),
    ];
    for (const [index, parts] of contents.entries()) {
      const path = directory.at(`sparse${index}`);
      const whole = Buffer.concat(parts);
      const pieces = parts.flatMap((part) =>
        Array.from({ length: Math.ceil(part.length / MIB) }, (_, at) => part.subarray(at * MIB, (at + 1) * MIB)),
      );
      const written = await files.write(
        { path, sparse: true, size: BigInt(whole.length), sha256: sha256(whole) },
        ...pieces,
      );
      assert.equal(written.bytesWritten, BigInt(whole.length));
      assert.ok(sha256(whole).equals(written.sha256));
      assert.ok((await readFile(path)).equals(whole), `content ${index}`);
      const { blocks } = await stat(path);
      assert.ok(blocks * 512 < 128 * 1_024, `content ${index} takes ${blocks * 512} bytes`);
    }
    await files.write({ path: directory.at("solid") }, Buffer.alloc(MIB));
    assert.ok((await stat(directory.at("solid"))).blocks * 512 >= MIB);
  });

  it("WriteFile writes pieces of any size in order, and can omit the checksum", async () => {
    const sizes = [0, 1, 10, 70_000, 3, 0, 16_383, 16_384, 5, 65_535, 1_000_000, 1, 2];
    const pieces = sizes.map((size) => randomBytes(size));
    const whole = Buffer.concat(pieces);
    for (const [sparse, skipSha256] of [
      [false, false],
      [false, true],
      [true, true],
    ] as const) {
      const path = directory.at(`pieces-${sparse}-${skipSha256}`);
      const response = await files.write({ path, skipSha256, sparse }, ...pieces);
      assert.ok((await readFile(path)).equals(whole));
      assert.equal(response.bytesWritten, BigInt(whole.length));
      assert.ok(Buffer.from(response.sha256).equals(skipSha256 ? Buffer.alloc(0) : sha256(whole)));
    }
  });

  it("WriteFile gives new entries in a setgid directory the directory's group", NEEDS_ROOT, async () => {
    const shared = directory.at("shared");
    await mkdir(shared);
    await chown(shared, 0, 4321);
    await chmod(shared, 0o2775);
    await files.write({ path: `${shared}/new` }, "x");
    await files.write({ path: `${shared}/a/b/deep`, createParents: true }, "x");
    await files.write({ path: `${shared}/given`, gid: 5 }, "x");
    const owners = await Promise.all(
      ["new", "a", "a/b", "a/b/deep", "given"].map((name) => ownerOf(`${shared}/${name}`)),
    );
    assert.deepEqual(owners, [...Array.from({ length: 4 }, () => [0, 4321]), [0, 5]]);
    assert.deepEqual(
      await Promise.all(["a", "a/b", "new"].map((name) => modeOf(`${shared}/${name}`))),
      [0o2755, 0o2755, 0o644],
    );
  });

  it("WriteFile accepts a message marked `last` with or without bytes", async () => {
    const last = (text: string): WriteFileRequest =>
      create(WriteFileRequestSchema, { message: { case: "data", value: Buffer.from(text) }, last: true });
    for (const [name, marksLast, messages, content] of [
      ["with-bytes", true, [dataMessage(Buffer.from("some ")), last("content")], "some content"],
      ["without", true, [dataMessage(Buffer.from("content")), last("")], "content"],
      ["nothing", true, [last("")], ""],
      ["unannounced", false, [last("content")], "content"],
    ] as const) {
      await files.writeMessages([headerMessage({ path: directory.at(name), marksLast }), ...messages]);
      assert.equal(await readFile(directory.at(name), "utf8"), content, name);
    }
  });

  it("WriteFile replaces a file atomically and keeps its owner and mode", NEEDS_ROOT, async () => {
    const path = directory.at("kept");
    await writeFile(path, "a long old content");
    await chown(path, 1234, 5678);
    await chmod(path, 0o4751);
    const { ino } = await stat(path);
    await files.write({ path }, "new");
    assert.equal(await readFile(path, "utf8"), "new");
    assert.deepEqual([await modeOf(path), ...(await ownerOf(path))], [0o4751, 1234, 5678]);
    assert.notEqual((await stat(path)).ino, ino);
  });

  it("WriteFile sets the given owner and mode, including setuid and owner 0", NEEDS_ROOT, async () => {
    const path = directory.at("given");
    await files.write({ path, mode: 0o6755, uid: 77, gid: 88 }, "x");
    assert.deepEqual([await modeOf(path), ...(await ownerOf(path))], [0o6755, 77, 88]);
    await files.write({ path, uid: 0 }, "x");
    assert.deepEqual([await modeOf(path), ...(await ownerOf(path))], [0o6755, 0, 88]);
    await files.write({ path, mode: 0, gid: 0 }, "x");
    assert.deepEqual([await modeOf(path), ...(await ownerOf(path))], [0, 0, 0]);
    await files.write({ path: directory.at("largest"), uid: 2 ** 32 - 2, gid: 2 ** 32 - 2 });
    assert.deepEqual(await ownerOf(directory.at("largest")), [2 ** 32 - 2, 2 ** 32 - 2]);
  });

  it("WriteFile replaces a symbolic link's target and keeps the link", async () => {
    await mkdir(directory.at("far"));
    await writeFile(directory.at("far/target"), "old");
    await symlink("target", directory.at("far/second"));
    await symlink("far/second", directory.at("first"));
    await symlink(directory.at("first"), directory.at("absolute"));
    await files.write({ path: directory.at("absolute") }, "new");
    assert.equal(await readFile(directory.at("far/target"), "utf8"), "new");
    assert.equal(await readlink(directory.at("first")), "far/second");
    assert.equal(await realpath(directory.at("absolute")), await realpath(directory.at("far/target")));
  });

  it("WriteFile creates a dangling symlink's target and rejects a symlink loop", async () => {
    await symlink("missing", directory.at("dangling"));
    await files.write({ path: directory.at("dangling") }, "there");
    assert.equal(await readFile(directory.at("missing"), "utf8"), "there");
    await symlink("loop-b", directory.at("loop-a"));
    await symlink("loop-a", directory.at("loop-b"));
    const looping = files.write({ path: directory.at("loop-a") }, "x");
    await failsWith(looping, status.NOT_FOUND, "PATH_NOT_FOUND", { errno: "ELOOP" });
  });

  it("WriteFile creates missing directories on request, owned like the file", NEEDS_ROOT, async () => {
    const path = directory.at("some//new/./directories/file");
    const { message } = await failsWith(files.write({ path }, "x"), status.NOT_FOUND, "PATH_NOT_FOUND");
    assert.match(message, /create_parents/);
    await files.write({ path, createParents: true, uid: 5, gid: 6, mode: 0o600 }, "x");
    assert.deepEqual(
      [await modeOf(directory.at("some/new")), ...(await ownerOf(directory.at("some/new")))],
      [0o755, 5, 6],
    );
    assert.deepEqual([await modeOf(path), ...(await ownerOf(path))], [0o600, 5, 6]);
    await files.write({ path: directory.at("plain"), createParents: true }, "x");
  });

  it("an exclusive WriteFile fails on any existing entry, even a dangling link", async () => {
    await writeFile(directory.at("there"), "old");
    await symlink("nowhere", directory.at("points-nowhere"));
    for (const name of ["there", "points-nowhere", "."])
      await failsWith(
        files.write({ path: directory.at(name), exclusive: true }, "x"),
        status.ALREADY_EXISTS,
        "ALREADY_EXISTS",
      );
    assert.equal(await readFile(directory.at("there"), "utf8"), "old");
    await files.write({ path: directory.at("exclusive"), exclusive: true }, "first");
    assert.equal(await readFile(directory.at("exclusive"), "utf8"), "first");
  });

  it("exactly one of many exclusive WriteFile calls succeeds", async () => {
    const path = directory.at("contested");
    const outcomes = await Promise.allSettled(
      Array.from({ length: 16 }, (_, i) => files.write({ path, exclusive: true }, String(i))),
    );
    const winners = outcomes.flatMap((outcome, i) => (outcome.status === "fulfilled" ? [String(i)] : []));
    assert.deepEqual(winners, [await readFile(path, "utf8")]);
  });

  it("concurrent WriteFile calls never mix their contents", async () => {
    const path = directory.at("rewritten");
    const contents = Array.from({ length: 12 }, (_, i) => Buffer.alloc(200_000 + i, i));
    await files.write({ path }, contents[0] as Buffer);
    const writers = Promise.all(contents.map((content) => files.write({ path }, content)));
    const isWhole = (data: Buffer): boolean => contents.some((content) => content.equals(data));
    for (let i = 0; i < 20; i++) assert.ok(isWhole((await files.read(path)).data));
    await writers;
    assert.ok(isWhole(await readFile(path)));
  });
});

describe("new files", () => {
  it("WriteFile gives a new file the workload's user and group by default", NEEDS_ROOT, async () => {
    await using other = await startAgent({ process: { user: "daemon:games" } });
    using calls = new FileCalls(other);
    await calls.write({ path: directory.at("users/own"), createParents: true }, "x");
    const groups = await readFile("/etc/group", "utf8");
    const games = Number(/^games:[^:]*:(\d+)/m.exec(groups)?.[1]);
    assert.deepEqual(await ownerOf(directory.at("users/own")), [1, games]);
    assert.deepEqual(await ownerOf(directory.at("users")), [1, games]);
    await calls.write({ path: directory.at("users/given"), uid: 0, gid: 0 }, "x");
    assert.deepEqual(await ownerOf(directory.at("users/given")), [0, 0]);
  });

  it("WriteFile fails with EXEC_BAD_USER if the workload's user is unknown", NEEDS_ROOT, async () => {
    await using other = await startAgent({ process: { user: "nobody-knows" } });
    using calls = new FileCalls(other);
    assert.equal((await failureOf(calls.write({ path: directory.at("unowned") }, "x"))).reason, "EXEC_BAD_USER");
    await calls.write({ path: directory.at("owned"), uid: 1, gid: 1 }, "x");
  });
});
