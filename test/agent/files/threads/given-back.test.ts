import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { setImmediate } from "node:timers/promises";
import { FileSystemError, type Timers } from "../../../../src/agent/domain/index.ts";
import { Directories } from "../../../../src/agent/files/calls/directories.ts";
import { FileSystem } from "../../../../src/agent/files/index.ts";
import type { Addon } from "../../../../src/agent/native/index.ts";
import { nodeTimers } from "../../../../src/agent/platform/index.ts";
import { ManualTimers, systemClock } from "../../../fixtures/clocks.ts";
import { type TestDirectory, testDirectory } from "../../../fixtures/files.ts";
import { addon } from "../../../fixtures/spawning.ts";

const EMFILE = -24;
/** Of the agent: the interval between two checks of what runs, and more of them than make an operation count as hung. */
const TICK_MS = 500;
const TICKS_UNTIL_HUNG = 40;

describe("a file operation that cannot even begin", () => {
  it("if a file operation cannot start, its thread is released", async () => {
    await using directory = await testDirectory();
    const { files, path, recover } = await withoutMemory(directory, nodeTimers);
    for (const outcome of await Promise.allSettled(Array.from({ length: 32 }, () => files.openRegular(path))))
      assert.equal(outcome.status, "rejected");
    recover();
    await assertReadable(files, path);
  });

  it("a file operation that cannot start never marks a mount as hung", async () => {
    await using directory = await testDirectory();
    const timers = new ManualTimers();
    const { files, path, recover } = await withoutMemory(directory, timers);
    await assert.rejects(files.openRegular(path), TypeError);
    recover();
    for (let tick = 0; tick < TICKS_UNTIL_HUNG; tick++) {
      timers.advance(TICK_MS);
      // A tick may probe the path of an operation, which takes a turn of the event loop for each of its names.
      await setImmediate();
    }
    await assertReadable(files, path);
  });
});

/** A file system whose addon can open nothing until `recover`, and a file in the directory. */
async function withoutMemory(
  directory: TestDirectory,
  timers: Timers,
): Promise<{ readonly files: FileSystem; readonly path: Buffer; readonly recover: () => void }> {
  await writeFile(directory.at("file"), "content");
  let isOutOfMemory = true;
  const openIn: Addon["openIn"] = async (...call) => addon.openIn(...call);
  const failing = (...call: Parameters<Addon["openIn"]>): Promise<number> => {
    if (isOutOfMemory) throw new TypeError("Cannot read properties of undefined (reading 'then')");
    return openIn(...call);
  };
  return {
    files: new FileSystem({ ...addon, openIn: failing }, timers),
    path: Buffer.from(directory.at("file")),
    recover: () => void (isOutOfMemory = false),
  };
}

async function assertReadable(files: FileSystem, path: Buffer): Promise<void> {
  const file = await files.openRegular(path);
  assert.ok("read" in file);
  await file.close();
}

describe("a tree whose directory cannot be opened twice", () => {
  it("a ReadTree call that cannot reopen its directory leaves no descriptor open", async () => {
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
