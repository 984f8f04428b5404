import assert from "node:assert/strict";
import { chmod, chown, lstat, mkdir, readdir, readFile, rename, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { status } from "@grpc/grpc-js";
import { FileSystem } from "../../../../src/agent/files/index.ts";
import { nodeTimers } from "../../../../src/agent/platform/index.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { until } from "../../../fixtures/awake.ts";
import {
  dataMessage,
  failureOf,
  FileCalls,
  headerMessage,
  openFiles,
  testDirectory,
  failsWith,
} from "../../../fixtures/files.ts";
import { NEEDS_INSIGHT, NEEDS_ROOT } from "../../../fixtures/privileges.ts";
import { addon } from "../../../fixtures/spawning.ts";

/** Owner of the hostile directory. */
const WORKLOAD = 1000;

const agent = forAllTests(await startAgent());
const calls = forAllTests(new FileCalls(agent));

/**
 * A directory of the workload, `inside`, beside one that the workload may not enter, with links from the first to the
 * second.
 */
async function scene() {
  const directory = await testDirectory();
  const [inside, outside] = [directory.at("inside"), directory.at("outside")];
  await mkdir(join(inside, "real"), { recursive: true });
  await mkdir(outside, { mode: 0o700 });
  await writeFile(join(outside, "secret"), "secret");
  await symlink(outside, join(inside, "absolute"));
  await symlink("../outside", join(inside, "dotted"));
  await symlink("real", join(inside, "within"));
  await symlink(join(outside, "secret"), join(inside, "file"));
  for (const name of ["", "real"]) await chown(join(inside, name), WORKLOAD, WORKLOAD);
  return { directory, inside, outside, [Symbol.asyncDispose]: () => directory[Symbol.asyncDispose]() };
}

async function assertEscape(call: Promise<unknown>, errno = "EXDEV"): Promise<string> {
  return (await failsWith(call, status.FAILED_PRECONDITION, "PATH_ESCAPES", { errno })).message;
}

const statIn = (beneath: string, path: string, more: Parameters<FileCalls["stat"]>[1] = {}) =>
  calls.stat(path, { beneath, ...more });

async function readIn(beneath: string, path: string, noSymlinks = false): Promise<string> {
  return (await calls.read(path, { beneath, noSymlinks })).data.toString();
}

function writeIn(beneath: string, path: string): Promise<unknown> {
  return calls.write({ beneath, path }, "x");
}

describe("a path beneath a directory", NEEDS_ROOT, () => {
  it("a path with `beneath` may use links that stay inside that directory", async () => {
    await using at = await scene();
    const beneath = at.inside;
    for (const [path, text] of [
      ["new", "1"],
      ["real/new", "2"],
      ["within/new", "3"],
      ["real/../again", "4"],
    ] as const) {
      await calls.write({ beneath, path, exclusive: path !== "within/new" }, text);
      assert.equal(await readIn(beneath, path), text);
    }
    assert.equal(await readFile(join(at.inside, "real/new"), "utf8"), "3");
    assert.equal((await statIn(beneath, ".")).uid, WORKLOAD);
    assert.equal(Buffer.from((await statIn(beneath, "within", { noFollow: true })).linkTarget).toString(), "real");
  });

  it("WriteFile with `beneath` replaces a link's target and keeps the link", async () => {
    await using at = await scene();
    await writeFile(join(at.inside, "real/old"), "old");
    await symlink("real/old", join(at.inside, "link"));
    await calls.write({ beneath: at.inside, path: "link" }, "new");
    assert.equal(await readFile(join(at.inside, "real/old"), "utf8"), "new");
    assert.ok((await lstat(join(at.inside, "link"))).isSymbolicLink());
    assert.deepEqual(await readdir(join(at.inside, "real")), ["old"]);
  });

  it("a path with `beneath` cannot leave that directory through links or dots", async () => {
    await using at = await scene();
    const beneath = at.inside;
    for (const directory of ["absolute", "dotted", "..", "real/../../outside", "within/../../outside"]) {
      await assertEscape(calls.write({ beneath, path: `${directory}/made`, exclusive: true }, "x"));
      await assertEscape(calls.write({ beneath, path: `${directory}/deep/made`, createParents: true }, "x"));
      await assertEscape(readIn(beneath, `${directory}/secret`));
      await assertEscape(statIn(beneath, `${directory}/secret`));
    }
    await assertEscape(calls.write({ beneath, path: "file" }, "x"));
    await assertEscape(readIn(beneath, "file"));
    const { linkTarget } = await statIn(beneath, "file", { noFollow: true });
    assert.equal(linkTarget.length, join(at.outside, "secret").length);
    assert.deepEqual(await readdir(at.outside), ["secret"]);
    assert.equal(await readFile(join(at.outside, "secret"), "utf8"), "secret");
    assert.deepEqual((await readdir(at.inside)).toSorted(), ["absolute", "dotted", "file", "real", "within"]);
  });

  it("`no_symlinks` rejects every link on the path", async () => {
    await using at = await scene();
    const beneath = at.inside;
    await symlink("new", join(at.inside, "last"));
    for (const path of ["within/new", "last"])
      await assertEscape(calls.write({ beneath, path, noSymlinks: true }, "x"), "ELOOP");
    await assertEscape(readIn(beneath, "file", true), "ELOOP");
    await calls.write({ beneath, path: "real/new", noSymlinks: true, createParents: true }, "x");
    assert.equal(await readIn(beneath, "real/new", true), "x");
    assert.equal((await statIn(beneath, "last", { noSymlinks: true, noFollow: true })).linkTarget.length, 3);
  });

  it("an absolute link inside the `beneath` directory is rejected with an explanation", async () => {
    await using at = await scene();
    const beneath = at.inside;
    await writeFile(join(at.inside, "real/here"), "here");
    await symlink(join(at.inside, "real/here"), join(at.inside, "own"));
    for (const call of [readIn, statIn, writeIn])
      assert.match(await assertEscape(call(beneath, "own")), /follows an absolute link/);
    assert.equal(await readFile(join(at.inside, "real/here"), "utf8"), "here");
  });

  it("a symbolic link loop with `beneath` fails with PATH_ESCAPES and ELOOP", async () => {
    await using at = await scene();
    const beneath = at.inside;
    await symlink("loop", join(at.inside, "loop"));
    for (const path of ["loop", "loop/deeper"])
      for (const call of [readIn, statIn, writeIn])
        assert.match(await assertEscape(call(beneath, path), "ELOOP"), /too many symbolic links/);
  });

  it("a failed WriteFile with `beneath` removes the parent directories that it created", async () => {
    await using at = await scene();
    const header = { beneath: at.inside, path: "a/b/c", createParents: true, uid: WORKLOAD, gid: WORKLOAD };
    // Sparse content is written as it comes, when the directories are there already.
    await failureOf(calls.write({ ...header, sparse: true, size: 5n }, "four"));
    assert.ok(!(await readdir(at.inside)).includes("a"));
    await calls.write(header, "x");
    assert.equal((await lstat(join(at.inside, "a/b"))).uid, WORKLOAD);
  });

  it("a running WriteFile does not follow a symlink that replaces its directory", NEEDS_INSIGHT, async () => {
    await using at = await scene();
    const swapped = Promise.withResolvers<void>();
    const messages = async function* () {
      yield headerMessage({ beneath: at.inside, path: "real/made", exclusive: true });
      yield dataMessage(Buffer.alloc(1024 * 1024));
      await swapped.promise;
      yield dataMessage(Buffer.from("end"));
    };
    const writing = calls.writeMessages(messages());
    const isOpened = async (): Promise<boolean> =>
      (await openFiles(agent.pid)).some((path) => path.startsWith(`${at.inside}/real/`));
    await until(isOpened, "the agent has a file in the directory");
    await rename(join(at.inside, "real"), join(at.inside, "moved"));
    await symlink(at.outside, join(at.inside, "real"));
    swapped.resolve();
    await writing;
    assert.deepEqual(await readdir(at.outside), ["secret"]);
    assert.deepEqual(await readdir(join(at.inside, "moved")), ["made"]);
  });

  it("the `beneath` directory may be a link but must exist", async () => {
    await using at = await scene();
    await symlink(at.inside, at.directory.at("entry"));
    await chmod(at.inside, 0o700);
    await calls.write({ beneath: at.directory.at("entry"), path: "made" }, "x");
    assert.equal(await readIn(at.directory.at("entry"), "made"), "x");
    for (const beneath of [at.directory.at("missing"), join(at.inside, "made")])
      await failsWith(readIn(beneath, "made"), status.NOT_FOUND, "PATH_NOT_FOUND", { path: beneath });
  });

  it("the `beneath` field requires an absolute directory and a relative path", async () => {
    const cases = [
      [{ beneath: "/tmp", path: "/etc/passwd" }, "path"],
      [{ beneath: "/tmp", path: "" }, "path"],
      [{ beneath: "tmp", path: "x" }, "beneath"],
      [{ beneath: "/t\0mp", path: "x" }, "beneath"],
      [{ path: "/etc/passwd", noSymlinks: true }, "no_symlinks"],
    ] as const;
    for (const [where, field] of cases)
      for (const call of [() => calls.write(where, "x"), () => statIn("", "", where)])
        await failsWith(call(), status.INVALID_ARGUMENT, "INVALID_FIELD", { field });
  });

  it("calls with `beneath` leave no descriptor open", async () => {
    await using at = await scene();
    const held = async (): Promise<string[]> =>
      (await openFiles(agent.pid)).filter((path) => path.includes(at.directory.path));
    await calls.write({ beneath: at.inside, path: "made" }, "x");
    await failureOf(calls.write({ beneath: at.inside, path: "absolute/made" }, "x"));
    await failureOf(readIn(at.inside, "file"));
    await readIn(at.inside, "made");
    await until(async () => (await held()).length === 0, "the agent has closed all of it");
  });

  it("the `beneath` field fails with UNIMPLEMENTED if the kernel lacks openat2", async () => {
    await using at = await scene();
    const without = new FileSystem(
      {
        ...addon,
        openIn: (directory, path, flags, mode, resolve) =>
          resolve === 0 ? addon.openIn(directory, path, flags, mode, 0) : Promise.resolve(-38),
      },
      nodeTimers,
    );
    await assert.rejects(without.beneath(Buffer.from(at.inside), false), { status: "UNIMPLEMENTED" });
  });
});
