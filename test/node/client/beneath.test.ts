import assert from "node:assert/strict";
import { mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import type { GuestPath, PlaceOptions } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";

const { files } = forAllTests(clientOf(forAllTests(await startAgent())));
const local = forAllTests(await testDirectory());
await writeFile(local.at("file"), "from outside");

/** A call with `beneath` of each method that has a path in the guest. */
const CALLS: Readonly<Record<string, (path: GuestPath, options: PlaceOptions) => Promise<unknown>>> = {
  readFile: (path, options) => files.readFile(path, options),
  createReadStream: (path, options) => files.createReadStream(path, options).toArray(),
  readPieces: (path, options) => Array.fromAsync(files.readPieces(path, options)),
  writeFile: (path, options) => files.writeFile(path, "changed", options),
  stat: (path, options) => files.stat(path, options),
  lstat: (path, options) => files.lstat(path, options),
  exists: (path, options) => files.exists(path, options),
  readlink: (path, options) => files.readlink(path, options),
  readdir: (path, options) => files.readdir(path, options),
  opendir: (path, options) => Array.fromAsync(files.opendir(path, options)),
  mkdir: (path, options) => files.mkdir(path, options),
  symlink: (path, options) => files.symlink("target", path, options),
  rm: (path, options) => files.rm(path, { recursive: true, ...options }),
  rename: (path, options) => files.rename(path, "renamed", options),
  chmod: (path, options) => files.chmod(path, 0o600, options),
  chown: (path, options) => files.chown(path, 0, 0, options),
  lchown: (path, options) => files.lchown(path, 0, 0, options),
  setAttributes: (path, options) => files.setAttributes(path, { mode: 0o600 }, options),
  upload: (path, options) => files.upload(local.path, path, { parents: true, ...options }),
  download: (path, options) => files.download(path, local.at("down"), options),
  writeTree: (path, options) => files.writeTree(path, [{ type: "file", name: "made", content: "" }], options),
  readTree: (path, options) => Array.fromAsync(files.readTree(path, options)),
  watch: (path, options) => files.watch(path, options).next(),
};

describe("the option `beneath`", () => {
  it("the tests of `beneath` cover every method of client.files", () => {
    const methods = Object.getOwnPropertyNames(Object.getPrototypeOf(files)).filter((name) => name !== "constructor");
    assert.deepEqual(methods.toSorted(), Object.keys(CALLS).toSorted());
  });

  for (const [name, call] of Object.entries(CALLS))
    it(`${name} with beneath rejects a path that leaves the directory`, async () => {
      await using directory = await testDirectory();
      await mkdir(directory.at("inside"));
      await mkdir(directory.at("outside/below"), { recursive: true });
      await writeFile(directory.at("outside/file"), "unchanged");
      await symlink("../outside", directory.at("inside/link"));
      await symlink(directory.at("outside"), directory.at("inside/absolute"));
      for (const beneath of [directory.at("inside"), Buffer.from(directory.at("inside"))])
        for (const path of ["../outside/below", "link/below", "link/file", "absolute/below"]) {
          const { reason } = await failureOf(call(path, { beneath }));
          assert.equal(reason, "PATH_ESCAPES", path);
        }
      assert.deepEqual((await readdir(directory.at("inside"))).toSorted(), ["absolute", "link"]);
      assert.deepEqual((await readdir(directory.at("outside"))).toSorted(), ["below", "file"]);
      assert.equal(await readFile(directory.at("outside/file"), "utf8"), "unchanged");
    });

  it("with `noSymlinks`, file calls reject even a symlink that stays within `beneath`", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("inside/real/below"), { recursive: true });
    await symlink("real", directory.at("inside/link"));
    const beneath = directory.at("inside");
    assert.equal((await files.stat("link/below", { beneath })).type, "directory");
    for (const [name, call] of Object.entries(CALLS)) {
      const { reason } = await failureOf(call("link/below", { beneath, noSymlinks: true }));
      assert.equal(reason, "PATH_ESCAPES", name);
    }
  });
});
