import assert from "node:assert/strict";
import { lstat, mkdir, readdir, readFile, readlink, symlink, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import type { LeftEntry } from "../../../src/node/client/index.ts";
import { FileTree } from "../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { startStandIn } from "../../fixtures/stand-in-agent.ts";

const client = forAllTests(clientOf(forAllTests(await startAgent())));
const { files } = client;

describe("client.files with the options of node:fs", () => {
  it("`readFile` returns bytes, or text with an encoding", async () => {
    await using directory = await testDirectory();
    await files.writeFile(directory.at("file"), "ä and more", "utf8");
    assert.deepEqual(await files.readFile(directory.at("file")), Buffer.from("ä and more"));
    assert.equal(await files.readFile(directory.at("file"), "utf8"), "ä and more");
    assert.equal(await files.readFile(directory.at("file"), { encoding: "latin1", length: 2 }), "Ã¤");
    assert.equal((await files.readFile(directory.at("file"), null)).length, 11);
    const wrong = await failureOf(files.readFile(directory.at("file"), "utf-9" as "utf8"));
    assert.deepEqual([wrong.status, wrong.option], ["INVALID_ARGUMENT", "encoding"]);
  });

  it("createReadStream() does not call the agent before its stream is read", async () => {
    await using directory = await testDirectory();
    const unread = files.createReadStream(directory.at("absent"));
    unread.destroy();
    const error = await failureOf(files.createReadStream(directory.at("absent")).toArray());
    assert.equal(error.reason, "PATH_NOT_FOUND");
  });

  it('writeFile with the flag "wx" replaces nothing', async () => {
    await using directory = await testDirectory();
    await files.writeFile(directory.at("file"), "first", { flag: "wx" });
    assert.equal(
      (await failureOf(files.writeFile(directory.at("file"), "x", { flag: "wx" }))).status,
      "ALREADY_EXISTS",
    );
    const appended = await failureOf(files.writeFile(directory.at("file"), "x", { flag: "a" as "w" }));
    assert.match(
      appended.message,
      /^flag must be "w" or "wx", not "a".* run\(\["sh", "-c", 'cat >> "\$1"', "sh", path\],/,
    );
    await client.run(["sh", "-c", 'cat >> "$1"', "sh", directory.at("file")], { input: " second", check: true });
    assert.equal(await files.readFile(directory.at("file"), "utf8"), "first second");
    await files.writeFile(directory.at("file"), "second");
    assert.equal(await readFile(directory.at("file"), "utf8"), "second");
  });

  it("`stat`, `lstat`, `readlink` and `exists` handle links and the `beneath` option", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "12345");
    await symlink("file", directory.at("link"));
    await symlink("nowhere", directory.at("dangling"));
    const { name, rawName, type, size, mtime, linkTarget } = await files.stat(directory.at("link"));
    assert.deepEqual([name, rawName, type, size, linkTarget], ["link", Buffer.from("link"), "file", 5, undefined]);
    assert.ok(mtime instanceof Date);
    const link = await files.lstat("link", { beneath: directory.path });
    assert.deepEqual([link.name, link.type, link.linkTarget], ["link", "symlink", Buffer.from("file")]);
    assert.deepEqual(await files.readlink(directory.at("link"), { encoding: "buffer" }), Buffer.from("file"));
    assert.equal(await files.readlink(directory.at("dangling")), "nowhere");
    assert.match(
      (await failureOf(files.readlink(directory.at("file")))).message,
      /is not a symbolic link \(it is a file\)$/,
    );
    const found = ["link", "dangling", "absent"].map((path) => files.exists(path, { beneath: directory.path }));
    assert.deepEqual(await Promise.all(found), [true, false, false]);
    for (const call of ["stat", "lstat", "exists"] as const) {
      const { reason } = await failureOf(files[call]("../outside", { beneath: directory.path }));
      assert.equal(reason, "PATH_ESCAPES");
    }
  });

  it("`readdir` returns names, or entries with their types", async () => {
    await using directory = await testDirectory();
    await files.mkdir(directory.at("a/b"), { recursive: true });
    await files.writeFile(directory.at("a/b/file"), "123");
    assert.deepEqual(await files.readdir(directory.at("a")), ["b"]);
    assert.deepEqual(await files.readdir(directory.path, { recursive: true }), ["a", "a/b", "a/b/file"]);
    const [entry] = await files.readdir(directory.at("a/b"), { withFileTypes: true });
    assert.deepEqual([entry?.name, entry?.type, entry?.size, entry?.mountPoint], ["file", "file", 3, false]);
    const names: string[] = [];
    // As after fs.promises.opendir, which returns a promise.
    for await (const { name } of await Promise.resolve(files.opendir(directory.at("a")))) names.push(name);
    assert.deepEqual(names, ["b"]);
  });

  it("`mkdir` without `recursive` requires a new path in an existing directory", async () => {
    await using directory = await testDirectory();
    assert.equal((await failureOf(files.mkdir(directory.at("a/b")))).reason, "PATH_NOT_FOUND");
    assert.equal(await files.mkdir(directory.at("a")), undefined);
    assert.equal((await failureOf(files.mkdir(directory.at("a")))).status, "ALREADY_EXISTS");
    assert.equal(await files.mkdir(directory.at("a"), { recursive: true }), undefined);
    assert.equal(await files.mkdir(directory.at("b"), { recursive: true }), directory.at("b"));
  });

  it("chmod() and chown() follow a link, and lchown() does not", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "");
    await symlink("file", directory.at("link"));
    await files.chmod(directory.at("link"), 0o604);
    await files.chown(directory.at("link"), 1000, 1001);
    await files.lchown(directory.at("link"), 1002, 1003);
    const [file, link] = await Promise.all([lstat(directory.at("file")), lstat(directory.at("link"))]);
    assert.deepEqual([file.mode & 0o777, file.uid, file.gid], [0o604, 1000, 1001]);
    assert.deepEqual([link.uid, link.gid], [1002, 1003]);
  });

  it("rm() with `force` accepts a missing path", async () => {
    await using directory = await testDirectory();
    assert.equal((await failureOf(files.rm(directory.at("absent")))).reason, "PATH_NOT_FOUND");
    assert.equal(await files.rm(directory.at("absent"), { force: true }), 0);
  });

  it("rm() of a non-empty directory fails and names the option `recursive`", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("recursive/x"), { recursive: true });
    const { reason, option, message, cause } = await failureOf(files.rm(directory.at("recursive")));
    assert.deepEqual([reason, option, cause instanceof Error], ["FOLDER_NOT_EMPTY", "recursive", true]);
    assert.match(message, /\/recursive".*is not empty.*; recursive: true removes it with everything in it$/);
    assert.equal(await files.rm(directory.at("recursive"), { recursive: true }), 2);
  });

  it("rm() rejects if entries remain, and reports them through `onFailure`", async () => {
    const leftEntries = [{ name: Buffer.from("mount"), errno: "EBUSY" }];
    const answers = { Remove: () => ({ removed: 3n, left: 2n, leftEntries }) };
    await using agent = await startStandIn({ service: FileTree, answers });
    const left: LeftEntry[] = [];
    const error = await failureOf(agent.client.files.rm("/x", { recursive: true, onFailure: (one) => left.push(one) }));
    assert.deepEqual([error.code, error.metadata], ["REMOVE_INCOMPLETE", { removed: "3", left: "2" }]);
    assert.match(error.message, /^2 entries could not be removed, all others were: mount: EBUSY; and 1 more$/);
    assert.deepEqual(left, [{ name: "mount", rawName: Buffer.from("mount"), errno: "EBUSY" }]);
  });

  it("upload() and download() accept `exclude` together with `beneath`", async () => {
    await using directory = await testDirectory();
    for (const path of ["here/src", "here/node_modules/x", "there"])
      await mkdir(directory.at(path), { recursive: true });
    for (const path of ["src/a.ts", "src/a.log", "node_modules/x/index.js"])
      await writeFile(directory.at(`here/${path}`), path);
    const exclude = ["node_modules", "*.log"];
    const beneath = directory.path;
    const { files: count } = await files.upload(directory.at("here"), "there", { beneath, exclude });
    const recursive = { recursive: true } as const;
    assert.deepEqual([count, (await readdir(directory.at("there"), recursive)).toSorted()], [1, ["src", "src/a.ts"]]);
    await files.download("here", directory.at("back"), { beneath, exclude });
    assert.deepEqual((await readdir(directory.at("back"), recursive)).toSorted(), ["src", "src/a.ts"]);
    await symlink("/", directory.at("out"));
    const escaped = await failureOf(files.download("out/etc", directory.at("not"), { beneath }));
    assert.equal(escaped.reason, "PATH_ESCAPES");
    assert.equal(await readlink(directory.at("out")), "/");
  });
});
