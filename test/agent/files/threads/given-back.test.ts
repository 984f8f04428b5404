import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { FileSystemError } from "../../../../src/agent/domain/index.ts";
import { Directories } from "../../../../src/agent/files/calls/directories.ts";
import { FileSystem } from "../../../../src/agent/files/index.ts";
import type { Addon } from "../../../../src/agent/native/index.ts";
import { nodeTimers } from "../../../../src/agent/platform/index.ts";
import { systemClock } from "../../../fixtures/clocks.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { addon } from "../../../fixtures/spawning.ts";

const EMFILE = -24;

describe("a file operation that cannot even begin", () => {
  it("file operations that fail to start release their threads", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "content");
    let isOutOfMemory = true;
    const openIn: Addon["openIn"] = async (...call) => addon.openIn(...call);
    const failing = (...call: Parameters<Addon["openIn"]>): Promise<number> => {
      if (isOutOfMemory) throw new TypeError("Cannot read properties of undefined (reading 'then')");
      return openIn(...call);
    };
    const files = new FileSystem({ ...addon, openIn: failing }, nodeTimers);
    const open = (): Promise<unknown> => files.openRegular(Buffer.from(directory.at("file")));
    for (const outcome of await Promise.allSettled(Array.from({ length: 32 }, open)))
      assert.equal(outcome.status, "rejected");
    isOutOfMemory = false;
    const file = await files.openRegular(Buffer.from(directory.at("file")));
    assert.ok("read" in file);
    await file.close();
  });
});

describe("a tree whose directory cannot be opened twice", () => {
  it("a tree whose directory cannot be reopened leaves no descriptor open", async () => {
    await using directory = await testDirectory();
    const openIn: Addon["openIn"] = async (at, path, flags, mode, resolve) =>
      Buffer.from(path).toString() === "." && (flags & 0o10000000) === 0
        ? EMFILE
        : addon.openIn(at, path, flags, mode, resolve);
    const fileSystem = new FileSystem({ ...addon, openIn }, nodeTimers);
    const clock = systemClock;
    const newFileOwner = (): Promise<{ uid: number; gid: number }> => Promise.resolve({ uid: 0, gid: 0 });
    const directories = new Directories({ fileSystem, clock, activity: { touch: () => {} }, newFileOwner });
    const caller = { connection: {}, signal: new AbortController().signal, failWithin1s: () => {} };
    const output = {
      items: () => Promise.resolve(),
      data: () => Promise.resolve(),
      failures: undefined,
      hole: undefined,
    };
    const location = {
      path: Buffer.from(directory.path),
      beneath: Buffer.alloc(0),
      noSymlinks: false,
      crossMounts: false,
      hardLinks: false,
    };
    const opened = (): number => readdirSync("/proc/self/fd").length;
    await fileSystem.stat(location.path, false);
    const before = opened();
    for (let round = 0; round < 8; round++)
      await assert.rejects(directories.readTree(location, output, caller), {
        cause: new FileSystemError("open", "EMFILE"),
      });
    // The last descriptor may be closed a moment later.
    assert.ok(opened() <= before + 1, `${opened()} descriptors, ${before} before`);
  });
});
