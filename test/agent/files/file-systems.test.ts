import assert from "node:assert/strict";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { execa } from "execa";
import type { WriteFileRequest } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import {
  dataMessage,
  failureOf,
  FileCalls,
  headerMessage,
  openFiles,
  testDirectory,
  testMount,
  bindMount,
  failsWith,
} from "../../fixtures/files.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { NEEDS_INSIGHT, NEEDS_ROOT } from "../../fixtures/privileges.ts";

const MIB = 1024 ** 2;

const agent = forAllTests(await startAgent());
const files = forAllTests(new FileCalls(agent));

describe("on a real file system", NEEDS_NAMESPACES, () => {
  it("StatPath and ReadFile return times exactly up to the limits of time_t", async () => {
    // Without noatime, a read could update the time of access before another call reports it (relatime of mount(8)).
    await using mounted = await testMount("tmpfs", () => "size=1m,noatime");
    for (const seconds of [2n ** 63n - 1n, 2n ** 53n + 1n, 1n - 2n ** 63n]) {
      await execa("touch", ["-d", `@${seconds}`, mounted.at("far")]);
      const { ctimeNs: changedNs } = await stat(mounted.at("far"), { bigint: true });
      const stats = await Promise.all([
        files.stat(mounted.at("far")),
        files.stat(mounted.at("far"), { noFollow: true }),
        files.stat("far", { beneath: mounted.path }),
        files.read(mounted.at("far")).then(({ stat: sent }) => sent),
      ]);
      for (const { mtime, atime, ctime } of stats) {
        assert.deepEqual([mtime?.seconds, mtime?.nanos, atime?.seconds], [seconds, 0, seconds]);
        assert.equal(ctime?.seconds, changedNs / 1_000_000_000n);
      }
    }
  });

  it("a write to a full file system keeps the old file", async () => {
    await using small = await testMount("tmpfs", () => "size=4m");
    await files.write({ path: small.at("file") }, "old");
    const parts = Array<Buffer>(40).fill(Buffer.alloc(MIB / 4));
    const full = { errno: "ENOSPC", path: small.at("file") };
    await failsWith(files.write({ path: full.path }, ...parts), status.RESOURCE_EXHAUSTED, "NO_SPACE", full);
    assert.equal(await readFile(small.at("file"), "utf8"), "old");
    assert.deepEqual(await small.names(), ["file"]);
    await files.write({ path: small.at("other") }, ...Array<Buffer>(14).fill(Buffer.alloc(MIB / 4)));
    assert.equal((await stat(small.at("other"))).size, 3.5 * MIB);
  });

  it("a file on a read-only file system is readable but not writable", async () => {
    await using readOnly = await testMount("tmpfs", () => "size=1m");
    await writeFile(readOnly.at("file"), "old");
    readOnly.remount("ro");
    const readsOnly = { errno: "EROFS" };
    for (const path of [readOnly.at("file"), readOnly.at("new")])
      await failsWith(files.write({ path }, "x"), status.PERMISSION_DENIED, "PATH_PERMISSION_DENIED", readsOnly);
    assert.equal((await files.read(readOnly.at("file"))).data.toString(), "old");
  });

  it("WriteFile on an overlayfs replaces the file without changing the lower layer", async (t) => {
    await using base = await testMount("tmpfs", () => "size=8m");
    for (const name of ["lower", "upper", "work"]) await mkdir(base.at(name));
    await writeFile(base.at("lower/file"), "of the image", { mode: 0o751 });
    const layers = `lowerdir=${base.at("lower")},upperdir=${base.at("upper")},workdir=${base.at("work")}`;
    await using overlay = await testMount("overlay", () => layers).catch(() => undefined);
    if (overlay === undefined) {
      t.skip("needs overlayfs in the kernel");
      return;
    }
    assert.equal((await files.read(overlay.at("file"))).data.toString(), "of the image");
    await files.write({ path: overlay.at("file") }, "of the sandbox");
    await files.write({ path: overlay.at("new/file"), createParents: true, exclusive: true }, "x");
    assert.equal((await files.read(overlay.at("file"))).data.toString(), "of the sandbox");
    assert.equal((await files.stat(overlay.at("file"))).mode, 0o751);
    assert.equal(await readFile(base.at("lower/file"), "utf8"), "of the image");
    assert.deepEqual((await overlay.names()).toSorted(), ["file", "new"]);
  });

  it("WriteFile to a file that is a mount point fails with EBUSY", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("below"), "below");
    await writeFile(directory.at("on"), "old");
    using _mount = bindMount(directory.at("below"), directory.at("on"));
    const writing = files.write({ path: directory.at("on") }, "new");
    await failsWith(writing, status.FAILED_PRECONDITION, "FILE_ERROR", { errno: "EBUSY" });
    assert.deepEqual((await directory.names()).toSorted(), ["below", "on"]);
    assert.equal((await files.read(directory.at("on"))).data.toString(), "below");
  });
});

describe("an agent killed in mid-write", () => {
  it("an agent killed during a write leaves only the old file", NEEDS_INSIGHT, async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "old");
    await using victim = await startAgent();
    using calls = new FileCalls(victim);
    async function* killing(): AsyncGenerator<WriteFileRequest> {
      yield headerMessage({ path: directory.at("file") });
      for (let i = 0; i < 8; i++) yield dataMessage(Buffer.alloc(MIB));
      const isOpened = async (): Promise<boolean> =>
        (await openFiles(victim.pid)).some((file) => file.startsWith(directory.path));
      await until(isOpened, "the agent has opened its new file");
      process.kill(victim.pid, "SIGKILL");
      await new Promise(() => {});
    }
    assert.equal((await failureOf(calls.writeMessages(killing()))).code, status.UNAVAILABLE);
    await victim.exited;
    assert.deepEqual(await directory.names(), ["file"]);
    assert.equal(await readFile(directory.at("file"), "utf8"), "old");
  });

  it("an agent killed during 50 writes leaves at most three temporary files", NEEDS_ROOT, async () => {
    const FILE_THREADS = 3;
    await using directory = await testDirectory();
    const names = Array.from({ length: 50 }, (_, index) => `file${index}`);
    await Promise.all(names.map((name) => writeFile(directory.at(name), "old")));
    await using victim = await startAgent();
    using calls = new FileCalls(victim);
    let answered = 0;
    const replacing = async (name: string): Promise<void> => {
      for (;;) {
        await calls.write({ path: directory.at(name) }, "new");
        if (++answered === 200) process.kill(victim.pid, "SIGKILL");
      }
    };
    const results = await Promise.allSettled(names.map(replacing));
    assert.ok(results.every(({ status: outcome }) => outcome === "rejected"));
    await victim.exited;
    const left = (await directory.names()).filter((name) => !names.includes(name));
    assert.ok(left.length <= FILE_THREADS, left.join(" "));
  });

  it("SIGTERM to the agent during a WriteFile fails the call and leaves no file", async () => {
    await using directory = await testDirectory();
    await using leaving = await startAgent();
    using calls = new FileCalls(leaving);
    async function* stopping(): AsyncGenerator<WriteFileRequest> {
      yield headerMessage({ path: directory.at("file") });
      yield dataMessage(Buffer.alloc(MIB));
      leaving.kill("SIGTERM");
      await new Promise(() => {});
    }
    assert.equal((await failureOf(calls.writeMessages(stopping()))).code, status.UNAVAILABLE);
    assert.equal((await leaving.exited).code, 0);
    assert.deepEqual(await directory.names(), []);
  });
});
