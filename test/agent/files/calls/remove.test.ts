import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { link, lstat, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { until } from "../../../fixtures/awake.ts";
import { TreeCalls } from "../../../fixtures/file-tree.ts";
import {
  failureOf,
  openFiles,
  testDirectory,
  testMount,
  bindMount,
  besides,
  failsWith,
} from "../../../fixtures/files.ts";
import { NEEDS_NAMESPACES } from "../../../fixtures/namespaces.ts";
import { NEEDS_INSIGHT, NEEDS_ROOT } from "../../../fixtures/privileges.ts";

const agent = forAllTests(await startAgent());
const calls = forAllTests(new TreeCalls(agent));

/** Names in a directory; none where there is no directory. */
async function names(directory: string): Promise<string[]> {
  return readdir(directory).catch(() => []);
}

describe("Remove", () => {
  it("Remove removes the same entries as rm -rf and counts them", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("outside"), "stays");
    for (const root of ["ours", "theirs"].map((name) => directory.at(name))) {
      await mkdir(`${root}/sub/deep/deeper`, { recursive: true });
      for (let index = 0; index < 1_000; index++) await writeFile(`${root}/sub/${index}`, "");
      for (const name of ["new\nline", "-rf", " ", "x".repeat(255)]) await mkdir(`${root}/sub/deep/${name}`);
      await writeFile(Buffer.concat([Buffer.from(`${root}/sub/deep/`), Buffer.from([0xff, 0xfe])]), "");
      await symlink("/etc", `${root}/sub/link`);
      await symlink("../../..", `${root}/sub/up`);
      await link(directory.at("outside"), `${root}/sub/deep/hard`);
      spawnSync("mkfifo", [`${root}/fifo`]);
    }
    const theirs = spawnSync("find", [directory.at("theirs"), "-printf", "x"], { encoding: "utf8" }).stdout.length;
    const all = await calls.remove({ path: directory.at("ours"), recursive: true });
    assert.deepEqual(all, { removed: theirs, left: 0, entries: {} });
    assert.equal(spawnSync("rm", ["-rf", directory.at("theirs")]).status, 0);
    assert.deepEqual(await directory.names(), ["outside"]);
    assert.equal(await readFile(directory.at("outside"), "utf8"), "stays");
    assert.ok((await readdir("/etc")).length > 0);
  });

  it("Remove without `recursive` removes only files, links and empty directories", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("full/empty"), { recursive: true });
    await writeFile(directory.at("file"), "");
    await symlink("full", directory.at("link"));
    for (const path of ["file", "link/"].map((name) => directory.at(name)))
      assert.deepEqual(await calls.remove({ path }), { removed: 1, left: 0, entries: {} });
    await failsWith(calls.remove({ path: directory.at("full") }), status.FAILED_PRECONDITION, "FOLDER_NOT_EMPTY");
    await calls.remove({ path: "full/empty", beneath: directory.path });
    await calls.remove({ path: directory.at("full") });
    await failsWith(calls.remove({ path: directory.at("full") }), status.NOT_FOUND, "PATH_NOT_FOUND");
    assert.deepEqual(await directory.names(), []);
  });

  it("Remove rejects /, trailing dots, the `beneath` directory and paths outside it", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("sub/below"), { recursive: true });
    await symlink("..", directory.at("sub/up"));
    const beneath = directory.at("sub");
    for (const [request, reason] of [
      [{ path: "/" }, "INVALID_FIELD"],
      [{ path: "//" }, "INVALID_FIELD"],
      [{ path: "/tmp/.." }, "INVALID_FIELD"],
      [{ path: ".", beneath }, "INVALID_FIELD"],
      [{ path: "below/..", beneath }, "INVALID_FIELD"],
      [{ path: "./", beneath }, "INVALID_FIELD"],
      [{ path: "../sub", beneath }, "PATH_ESCAPES"],
      [{ path: "up/sub", beneath }, "PATH_ESCAPES"],
    ] as const) {
      const removing = failureOf(calls.remove({ ...request, recursive: true }));
      assert.equal((await removing).reason, reason, JSON.stringify(request));
    }
    assert.deepEqual((await readdir(beneath)).toSorted(), ["below", "up"]);
  });

  it("Remove rejects a mount point, and does not remove mount points below its path", NEEDS_NAMESPACES, async () => {
    await using mount = await testMount("tmpfs", () => "mode=0755");
    await using directory = await testDirectory();
    await writeFile(mount.at("inside"), "stays");
    await mkdir(directory.at("top/sub/point"), { recursive: true });
    for (const name of ["top/before", "top/sub/file", "top/sub/gone"]) await writeFile(directory.at(name), "");
    using point = bindMount(mount.path, directory.at("top/sub/point"));
    using file = bindMount("/etc/passwd", directory.at("top/sub/file"));
    for (const recursive of [true, false]) {
      const removing = calls.remove({ path: directory.at("top/sub/point"), recursive });
      await failsWith(removing, status.FAILED_PRECONDITION, "MOUNT_POINT");
    }
    const left = { "sub/point": "EBUSY", "sub/file": "EBUSY" };
    const all = await calls.remove({ path: directory.at("top"), recursive: true });
    assert.deepEqual(all, { removed: 2, left: 2, entries: left });
    for (const mounted of [file, point]) mounted[Symbol.dispose]();
    assert.equal(await readFile(mount.at("inside"), "utf8"), "stays");
    assert.ok((await readFile("/etc/passwd", "utf8")).length > 0);
  });

  it("a cancelled Remove stops deleting and closes its descriptors", NEEDS_INSIGHT, async () => {
    await using directory = await testDirectory();
    // A removal may be complete before it is cancelled: then try another.
    for (let isCancelled = false; !isCancelled;) {
      for (let index = 0; index < 300; index++) await mkdir(directory.at(`top/${index}/below`), { recursive: true });
      const cancelled = new AbortController();
      const removing = calls.remove({ path: directory.at("top"), recursive: true }, { signal: cancelled.signal });
      const outcome = removing.then(() => undefined, failureOf.bind(undefined, removing));
      await until(async () => (await names(directory.at("top"))).length < 300, "it has begun");
      cancelled.abort();
      isCancelled = (await outcome)?.code === status.CANCELLED && (await names(directory.at("top"))).length > 0;
    }
    await until(
      async () => !(await openFiles(agent.pid)).some((path) => path.startsWith(directory.path)),
      "all is closed",
    );
    const left = await names(directory.at("top"));
    await calls.list({ path: directory.path });
    assert.deepEqual(await names(directory.at("top")), left);
  });

  it("Remove deletes nothing outside its path even if symlinks replace directories meanwhile", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("outside/deep"), { recursive: true });
    for (const name of ["outside/secret", "outside/deep/secret"]) await writeFile(directory.at(name), "stays");
    const swap = `
      cd "$1" || exit 1
      while :; do
        mkdir -p inside/a/b/c 2>/dev/null; : > inside/a/b/file 2>/dev/null
        mv inside/a/b inside/moved 2>/dev/null; ln -s ../../outside inside/a/b 2>/dev/null
        mv inside/a inside/other 2>/dev/null; ln -s ../outside inside/a 2>/dev/null
        mv inside/moved . 2>/dev/null; rm -f inside/a
      done`;
    await using swapper = besides("bash", "-c", swap, "bash", directory.path);
    let removals = 0;
    for (let attempt = 0; attempt < 400 || removals < 20; attempt++) {
      const path = attempt % 2 === 0 ? "inside" : "inside/a";
      const outcome = await calls.remove({ path, beneath: directory.path, recursive: true }).catch(() => undefined);
      if (outcome !== undefined && outcome.removed > 0) removals += 1;
    }
    await swapper[Symbol.asyncDispose]();
    for (const name of ["outside/secret", "outside/deep/secret"])
      assert.equal(await readFile(directory.at(name), "utf8"), "stays");
    assert.ok((await lstat(directory.at("outside/deep"))).isDirectory());
  });
});
