import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { describe, it } from "node:test";
import { FileSystemHung } from "../../../../src/agent/domain/index.ts";
import { Leftovers } from "../../../../src/agent/files/entries/leftovers.ts";
import { createFile } from "../../../../src/agent/files/entries/new-file.ts";
import { FileSystem } from "../../../../src/agent/files/index.ts";
import type { RegularFile } from "../../../../src/agent/files/open/regular-file.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { fuseMount } from "../../../fixtures/programs/index.ts";
import { ManualTimers } from "../../../fixtures/clocks.ts";
import { NEEDS_FUSE } from "../../../fixtures/privileges.ts";
import { addon } from "../../../fixtures/spawning.ts";

/** Of the agent's looks at what runs: two of them make an operation late. */
const LOOK_MS = 500;

const timers = new ManualTimers();
/** Before any other use of libuv's threads, whose number it sets. */
const files = new FileSystem(addon, timers);

const bytes = (path: string): Buffer => Buffer.from(path);

/** Writes a file of a byte and syncs it. A file of the mount "late" says that it has 64 KiB. */
async function writeDurably(
  parent: string,
  name: string,
  sizeBytes: bigint,
  { signal, onBegun }: { readonly signal: AbortSignal; readonly onBegun?: () => void },
): Promise<void> {
  const opened = await files.openDirectory("create", bytes(parent), "change");
  const file = await createFile(opened, new Leftovers(), { sparse: false, sha256: true });
  await file.write([bytes("x")]);
  onBegun?.();
  try {
    await file.commit({ path: bytes(name), sizeBytes }, { exclusive: false, syncs: true, signal });
  } finally {
    await file.dispose();
  }
}

describe("64 writes to a disk whose fsyncs do not end", NEEDS_FUSE, () => {
  it("64 blocked fsyncs occupy only eight threads and delay other calls only briefly", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "content");
    await using mount = await fuseMount("hanging_mount", directory.at("slow"), ["late"]);
    const output = mount.server.stdout;
    let begun = 0;
    const allBegun = Promise.withResolvers<void>();
    const write = async (
      above: string,
      name: string,
      signal: AbortSignal = new AbortController().signal,
    ): Promise<void> => {
      const onBegun = (): void => {
        begun += 1;
        if (begun === 72) allBegun.resolve();
      };
      await writeDurably(directory.at(above), name, above === "slow" ? 65_536n : 1n, { signal, onBegun });
    };
    // Time stands still: nothing becomes late.
    const writes = Array.from({ length: 64 }, async (_, index) => write("slow", `${index}`));
    let taken = 0;
    for await (const line of createInterface(output)) if (line === "taken" && ++taken === 8) break;
    output.on("data", () => (taken += 1));
    const cancelled = new AbortController();
    const givenUp = Array.from({ length: 8 }, async (_, index) => write("slow", `no-${index}`, cancelled.signal));
    const reason = new Error("its client has gone");
    await allBegun.promise;
    cancelled.abort(reason);
    for (const outcome of await Promise.allSettled(givenUp)) assert.deepEqual(outcome, { status: "rejected", reason });
    for (let round = 0; round < 8; round++) {
      assert.equal((await files.stat(bytes(directory.at("slow/x")), false)).sizeBytes, 65_536n);
      const file = await files.openRegular(bytes(directory.at("file")));
      assert.ok("read" in file);
      assert.equal(await file.read(Buffer.alloc(16), 0n), 7);
      await file.close();
    }
    // An fsync of another file system waits until these are late: they might be fast.
    const others = Array.from({ length: 8 }, async (_, index) => write(".", `other-${index}`));
    timers.advance(2 * LOOK_MS);
    await Promise.all(others);
    assert.equal(taken, 8);
    mount.server.stdin.write("a");
    await Promise.all(writes);
  });
});

/** Waits until no other thread of this process has work: those of a busy machine are slower than any pause. */
async function threadsAtRest(): Promise<void> {
  const works = (id: string): boolean => /\) R /.test(readFileSync(`/proc/self/task/${id}/stat`, "latin1"));
  do await new Promise((resolve) => setTimeout(resolve, 100));
  while (readdirSync("/proc/self/task").some((id) => id !== String(process.pid) && works(id)));
}

/** Lets time go on until the promise resolves. Returns how much. */
async function timeUntil(promise: Promise<unknown>): Promise<number> {
  let isDone = false;
  const done = promise.finally(() => (isDone = true));
  for (let durationMs = 0; ; durationMs += LOOK_MS) {
    await Promise.race([done, threadsAtRest()]);
    if (isDone) return durationMs;
    timers.advance(LOOK_MS);
  }
}

describe("calls into a mount that never answers", NEEDS_FUSE, () => {
  it("calls to a hung mount delay other calls briefly at first, then not at all", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "content");
    await using _mount = await fuseMount("hanging_mount", directory.at("hung"));
    const living = (): Promise<unknown> => files.stat(bytes(directory.at("file")), false);
    const call = async (index: number): Promise<unknown> =>
      files.stat(bytes(directory.at(`hung/${index}`)), false).catch((error: unknown) => error);
    const hanging = Array.from({ length: 3 }, async (_, index) => call(index));
    assert.ok((await timeUntil(living())) < 6 * LOOK_MS);
    hanging.push(...Array.from({ length: 37 }, async (_, index) => call(3 + index)));
    assert.ok((await timeUntil(living())) < 20 * LOOK_MS);
    hanging.push(...Array.from({ length: 40 }, async (_, index) => call(40 + index)));
    for (let round = 0; round < 8; round++) await living();
    await timeUntil(Promise.all(hanging));
    for (const error of await Promise.all(hanging)) {
      assert.ok(error instanceof FileSystemHung);
      assert.equal(error.mount?.path, directory.at("hung"));
    }
  });
});

async function openedFile(path: string): Promise<RegularFile> {
  const file = await files.openRegular(bytes(path));
  assert.ok("read" in file);
  return file;
}

describe("calls of many kinds to a disk that does not answer", NEEDS_FUSE, () => {
  it("hung reads of a disk delay all other calls only briefly", async () => {
    await using directory = await testDirectory();
    await writeFile(directory.at("file"), "content");
    await using mount = await fuseMount("hanging_mount", directory.at("slow"), ["late"]);
    const stuck = await Promise.all(
      Array.from({ length: 20 }, async (_, index) => openedFile(directory.at(`slow/${index}`))),
    );
    // Only now: time stands still, so an open that came after the first reads would wait for ever.
    const reads = stuck.map(async (file) => file.read(Buffer.alloc(16), 0n));
    const other = async (path: string): Promise<unknown> => files.stat(bytes(directory.at(path)), false);
    assert.ok((await timeUntil(Promise.all([other("file"), other("slow/x")]))) <= 3 * LOOK_MS);
    for (let round = 0; round < 8; round++) await Promise.all([other("file"), other("slow/y")]);
    mount.server.stdin.write("a");
    for (const sizeBytes of await Promise.all(reads)) assert.equal(sizeBytes, 16);
    for (const file of stuck) await file.close();
  });

  it("fsyncs that hang on two disks do not block a third disk", async () => {
    await using directory = await testDirectory();
    await using one = await fuseMount("hanging_mount", directory.at("one"), ["late"]);
    await using other = await fuseMount("hanging_mount", directory.at("other"), ["late"]);
    const { signal } = new AbortController();
    let taken = 0;
    const allTaken = Promise.withResolvers<void>();
    for (const { server } of [one, other])
      createInterface(server.stdout).on("line", (line) => {
        if (line === "taken") taken += 1;
        if (taken === 16) allTaken.resolve();
      });
    const stuck = ["one", "other"].flatMap((name) =>
      Array.from({ length: 8 }, async (_, index) => writeDurably(directory.at(name), `${index}`, 65_536n, { signal })),
    );
    await timeUntil(allTaken.promise);
    const living = writeDurably(directory.path, "file", 1n, { signal });
    assert.ok((await timeUntil(living)) <= 3 * LOOK_MS);
    for (const { server } of [one, other]) server.stdin.write("a");
    await Promise.all(stuck);
  });
});

describe("a mount that answers after five seconds", NEEDS_FUSE, () => {
  it("calls to a mount that answers after five seconds do not fail", async () => {
    await using directory = await testDirectory();
    await using mount = await fuseMount("hanging_mount", directory.at("slow"), ["late"]);
    mount.server.kill("SIGSTOP");
    const calls: Promise<{ sizeBytes: bigint }>[] = [];
    for (let look = 0; look < 10; look++) {
      calls.push(...Array.from({ length: 4 }, async () => files.stat(bytes(directory.at(`slow/${look}`)), false)));
      await timeUntil(new Promise((resolve) => setTimeout(resolve, 50)));
      timers.advance(LOOK_MS);
    }
    mount.server.kill("SIGCONT");
    for (const { sizeBytes } of await Promise.all(calls)) assert.equal(sizeBytes, 65_536n);
  });
});
