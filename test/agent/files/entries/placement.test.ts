import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chown, link, mkdir, readFile, stat, symlink, utimes, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { FileSystemError } from "../../../../src/agent/domain/index.ts";
import { Leftovers } from "../../../../src/agent/files/entries/leftovers.ts";
import { makeDirectory } from "../../../../src/agent/files/entries/make.ts";
import { createFile, type NewFile } from "../../../../src/agent/files/entries/new-file.ts";
import { ENTRY, type NewEntry } from "../../../../src/agent/files/entries/record.ts";
import { FileSystem } from "../../../../src/agent/files/index.ts";
import { nodeTimers } from "../../../../src/agent/platform/index.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { addon } from "../../../fixtures/spawning.ts";
import { NEEDS_ROOT } from "../../../fixtures/privileges.ts";

const ENOENT = -2;
const WITH_SHA256 = { sparse: false, sha256: true };
const TEMPORARY = /^\.svc-guest-[0-9a-f]{24}\.tmp$/;

const [BEFORE_NAME, AT_ONCE] = [new AbortController().signal, { exclusive: false, syncs: true }];
const SELF = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };

const isFile = (record: Uint8Array): boolean => Buffer.from(record).readUInt32LE(8) === ENTRY.file;

/** The file system of an agent that cannot place unnamed files: no /proc, no capability. */
const named = (): FileSystem => {
  const makeEntry: typeof addon.makeEntry = async (at, record, temporary, flags) =>
    isFile(record) && temporary.length === 0 ? ENOENT : addon.makeEntry(at, record, temporary, flags);
  return new FileSystem({ ...addon, makeEntry }, nodeTimers);
};

/** Creates a file in a directory, by way of one file system. */
async function createIn(files: FileSystem, path: string, leftovers = new Leftovers()): Promise<NewFile> {
  return createFile(await files.openDirectory("create", Buffer.from(path), "change"), leftovers, WITH_SHA256);
}

/** Gives it a name in its directory. */
async function place(file: NewFile, name: string, more: Partial<NewEntry> = {}, exclusive = false): Promise<void> {
  const entry = { path: Buffer.from(name), owner: SELF, sizeBytes: 0n, ...more };
  await file.commit(entry, { ...AT_ONCE, exclusive, signal: BEFORE_NAME });
}

/** How a file is held until it is placed, and what the directory shows meanwhile. */
const WAYS: readonly (readonly [string, FileSystem, (names: readonly string[]) => boolean])[] = [
  ["a file without a name", new FileSystem(addon, nodeTimers), (names) => names.length === 0],
  ["a file with a temporary name", named(), (names) => names.length === 1 && TEMPORARY.test(names[0] ?? "")],
];

const isErrno =
  (errno: string) =>
  (error: unknown): boolean =>
    error instanceof FileSystemError && error.errno === errno;

for (const [name, files, meanwhile] of WAYS) {
  describe(`placing ${name} at its path`, () => {
    it(`${name} is private until it is placed`, NEEDS_ROOT, async () => {
      await using directory = await testDirectory();
      const file = await createIn(files, directory.path);
      await file.write([Buffer.from("some ")]);
      await file.write([Buffer.from("content")]);
      const names = await directory.names();
      assert.ok(meanwhile(names), String(names));
      if (names[0] !== undefined) assert.equal((await stat(directory.at(names[0]))).mode & 0o7777, 0o600);
      await place(file, "placed", { uid: 11, gid: 12, mode: 0o6711, sizeBytes: 12n });
      await file.dispose();
      const { mode, uid, gid } = await stat(directory.at("placed"));
      assert.deepEqual([mode & 0o7777, uid, gid], [0o6711, 11, 12]);
      assert.equal(await readFile(directory.at("placed"), "utf8"), "some content");
      assert.deepEqual(await directory.names(), ["placed"]);
    });

    it(`${name} replaces an existing file unless exclusive`, async () => {
      await using directory = await testDirectory();
      await writeFile(directory.at("file"), "old");
      const exclusive = await createIn(files, directory.path);
      await assert.rejects(place(exclusive, "file", {}, true), isErrno("EEXIST"));
      await exclusive.dispose();
      assert.equal(await readFile(directory.at("file"), "utf8"), "old");
      const file = await createIn(files, directory.path);
      await file.write([Buffer.from("new")]);
      await place(file, "file", { sizeBytes: 3n });
      await file.dispose();
      assert.equal(await readFile(directory.at("file"), "utf8"), "new");
      assert.deepEqual(await directory.names(), ["file"]);
    });

    it(`${name} vanishes if it cannot be placed`, async () => {
      await using directory = await testDirectory();
      await mkdir(directory.at("directory"));
      const given = await createIn(files, directory.path);
      await given.dispose();
      const stuck = await createIn(files, directory.path);
      await assert.rejects(place(stuck, "directory"), FileSystemError);
      await stuck.dispose();
      assert.deepEqual(await directory.names(), ["directory"]);
    });

    it(`${name} gets its mode regardless of umask`, NEEDS_ROOT, async () => {
      await using directory = await testDirectory();
      const umask = process.umask(0o777);
      try {
        const file = await createIn(files, directory.path);
        await place(file, "file", { mode: 0o666 });
        await file.dispose();
        await makeDirectory(files, Buffer.from(directory.at("made")), { uid: 3, gid: 4, mode: 0o755, owner: SELF });
      } finally {
        process.umask(umask);
      }
      assert.equal((await stat(directory.at("file"))).mode & 0o7777, 0o666);
      const { mode, uid, gid } = await stat(directory.at("made"));
      assert.deepEqual([mode & 0o7777, uid, gid], [0o755, 3, 4]);
    });
  });
}

describe("temporary names of files", () => {
  it("placing an exclusive file fails if its temporary name cannot be removed", async (t) => {
    await using directory = await testDirectory();
    const file = await createIn(named(), directory.path);
    // Entries may be added, but not removed.
    if (spawnSync("chattr", ["+a", directory.path]).status !== 0) {
      await file.dispose();
      t.skip("needs CAP_LINUX_IMMUTABLE and a file system with attributes");
      return;
    }
    try {
      await assert.rejects(place(file, "file", {}, true), isErrno("EPERM"));
    } finally {
      spawnSync("chattr", ["-a", directory.path]);
    }
    assert.deepEqual(
      (await directory.names()).filter((name) => !TEMPORARY.test(name)),
      [],
    );
    await file.dispose();
    assert.deepEqual(await directory.names(), []);
  });

  it("the first write to a directory removes a killed agent's temporary files", NEEDS_ROOT, async () => {
    await using directory = await testDirectory();
    const nameOf = (digit: string): string => `.svc-guest-${digit.repeat(24)}.tmp`;
    const longAgo = new Date(Date.now() - 2 * 3_600_000);
    const leave = async (name: string): Promise<void> => {
      await writeFile(directory.at(name), "half");
      await utimes(directory.at(name), longAgo, longAgo);
    };
    for (const name of [nameOf("a"), nameOf("b"), nameOf("c"), ".svc-guest-short.tmp", "other.tmp"]) await leave(name);
    await chown(directory.at(nameOf("b")), 1_000, 1_000);
    await link(directory.at(nameOf("c")), directory.at("linked"));
    await writeFile(directory.at(nameOf("d")), "of an agent that lives");
    await symlink(directory.at("other.tmp"), directory.at(nameOf("e")));
    await mkdir(directory.at(nameOf("f")));
    await utimes(directory.at(nameOf("f")), longAgo, longAgo);
    const before = new Set(await directory.names());
    const files = named();
    const leftovers = new Leftovers();
    const write = async (name: string): Promise<void> => {
      const file = await createIn(files, directory.path, leftovers);
      await place(file, name);
      await file.dispose();
    };
    await write("new");
    const after = new Set(await directory.names());
    assert.deepEqual([...before.difference(after)], [nameOf("a")]);
    assert.deepEqual([...after.difference(before)], ["new"]);
    // A directory is looked through once: later writes do not pay for that.
    await leave(nameOf("a"));
    await write("another");
    assert.ok((await directory.names()).includes(nameOf("a")));
  });
});
