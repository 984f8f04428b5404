import assert from "node:assert/strict";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { describe, it, type TestContext } from "node:test";
import { status } from "@grpc/grpc-js";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { TreeCalls } from "../../fixtures/file-tree.ts";
import {
  failureOf,
  FileCalls,
  headerMessage,
  openFiles,
  type TestDirectory,
  testDirectory,
  failsWith,
} from "../../fixtures/files.ts";
import { fuseMount } from "../../fixtures/programs/index.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";

/** Parts of a test with a hung file system. */
interface Parts {
  readonly agent: RunningAgent;
  readonly files: FileCalls;
  readonly directory: TestDirectory;
  /** Mount point of the file system, in the directory. */
  readonly hung: string;
  /** Lets the server answer, if it can. */
  readonly answer: () => void;
  /** Ends the server. */
  readonly unmount: () => Promise<void>;
}

/** Runs a test with an agent beside a file system whose server answers, or does not. */
async function beside(
  server: Parameters<typeof fuseMount>[0],
  t: TestContext,
  test: (parts: Parts) => Promise<void>,
  more: readonly string[] = [],
): Promise<void> {
  await using directory = await testDirectory();
  const hung = directory.at("hung");
  await writeFile(directory.at("file"), "content");
  await using agent = await startAgent();
  // Unmounted before the agent is waited for: a read that the server has taken cannot be killed.
  await using mount = await fuseMount(server, hung, more).catch(() => undefined);
  if (mount === undefined) {
    t.skip(server === "hanging_automount" ? "needs autofs in the kernel, and root" : "needs root and FUSE");
    return;
  }
  using files = new FileCalls(agent);
  const answer = (): void => void mount.server.stdin.write("a");
  await test({ agent, files, directory, hung, answer, unmount: async () => mount[Symbol.asyncDispose]() });
  assert.deepEqual(await agent.stop(), { code: 0, signal: null });
}

async function assertHung(call: Promise<unknown>, mount: string): Promise<void> {
  const { message } = await failsWith(call, status.FAILED_PRECONDITION, "FILE_SYSTEM_HUNG", { mount });
  assert.ok(message.includes(`the file system mounted at ${JSON.stringify(mount)} does not respond`), message);
}

async function isEmpty(files: FileCalls, mount: string): Promise<boolean> {
  return (await failureOf(files.stat(`${mount}/x`))).reason === "PATH_NOT_FOUND";
}

describe("a file system that never answers", () => {
  it("calls to a hung mount fail with its path; other calls continue", async (t) => {
    await beside("hanging_mount", t, async ({ files, directory, hung, unmount }) => {
      await symlink(directory.at("hung/target"), directory.at("link"));
      const calls = (): Promise<unknown>[] => [
        ...Array.from({ length: 8 }, async (_, index) => files.read(`${hung}/${index}`)),
        files.stat(`${hung}/x`),
        files.stat(hung),
        files.write({ path: `${hung}/y` }),
        files.write({ path: `${hung}/new/y`, createParents: true }),
        files.read(directory.at("link")),
        files.writeMessages([headerMessage({ path: "y", beneath: hung })]),
        files.writeMessages([headerMessage({ path: "hung/y", beneath: directory.path })]),
      ];
      const hanging = Promise.all(calls().map(async (call) => assertHung(call, hung)));
      // More reads than threads: they wait for the hung ones until those are given up.
      const living = Array.from({ length: 8 }, async () => files.read(directory.at("file")));
      for (const { data } of await Promise.all(living)) assert.equal(data.toString(), "content");
      await hanging;
      // More than the threads that may be given up: so these must take none.
      for (let round = 0; round < 3; round++) await Promise.all(calls().map(async (call) => assertHung(call, hung)));
      await files.write({ path: directory.at("other"), beneath: "" }, "still");
      assert.equal((await files.stat(directory.at("other"))).size, 5n);
      await unmount();
      // The threads are back, and the directory below can be used.
      await until(() => isEmpty(files, hung), "it is an empty directory");
      await files.write({ path: `${hung}/y` }, "again");
    });
  });

  it("a hung file system delays neither commands nor the agent's exit", async (t) => {
    await beside("hanging_mount", t, async ({ agent, files, hung }) => {
      const abort = new AbortController();
      const hanging = Array.from({ length: 8 }, async (_, index) => {
        for await (const chunk of files.chunks({ path: `${hung}/${index}` }, { signal: abort.signal })) void chunk;
      });
      const settled = Promise.allSettled(hanging);
      const { exit, stdout } = await exec(agent, { args: ["echo", "alive"], user: "daemon" });
      assert.deepEqual([exit.code, stdout.toString()], [0, "alive\n"]);
      abort.abort();
      assert.ok((await settled).every((outcome) => outcome.status === "rejected"));
    });
  });
});

describe("a name at which an automounter hangs", () => {
  it("calls to a hung automount fail; its parent directory stays usable", async (t) => {
    await beside("hanging_automount", t, async ({ files, directory, hung, unmount }) => {
      for (let round = 0; round < 4; round++) {
        const calls = [files.stat(`${hung}/x`), files.read(directory.at("hung/y"))];
        await Promise.all(calls.map(async (call) => assertHung(call, hung)));
        assert.equal((await files.read(directory.at("file"))).data.toString(), "content");
      }
      await unmount();
      await until(() => isEmpty(files, hung), "it is an empty directory");
    });
  });
});

describe("a file system that answers late", () => {
  it("after a hung file system answers, reads succeed with the right data", async (t) => {
    await beside(
      "hanging_mount",
      t,
      async ({ agent, files, directory, hung, answer }) => {
        await writeFile(directory.at("large"), Buffer.alloc(2 ** 20, "r"));
        const before = new Set(await openFiles(agent.pid));
        const reads = Array.from({ length: 5 }, async (_, index) => assertHung(files.read(`${hung}/${index}`), hung));
        await Promise.all(reads);
        await assertHung(files.read(`${hung}/x`), hung);
        // Descriptors whose reads are still in the kernel may not be closed: their numbers would be reused.
        assert.ok((await openFiles(agent.pid)).some((path) => path.startsWith(hung)));
        answer();
        await until(async () => {
          const { data } = await files.read(directory.at("large"));
          assert.ok(data.every((byte) => byte === "r".charCodeAt(0)));
          return (await files.read(`${hung}/x`).catch(() => undefined))?.data.length === 64 * 1024;
        }, "the file system is used again");
        await until(
          async () => !(await openFiles(agent.pid)).some((path) => path.startsWith(hung) && !before.has(path)),
          "its files are closed",
        );
      },
      ["late"],
    );
  });
});

describe("a directory with a hung mount", () => {
  it("in a directory with a hung mount, all other entries can be listed and removed", NEEDS_FUSE, async () => {
    await using directory = await testDirectory();
    const hung = directory.at("top/hung");
    await mkdir(directory.at("top"));
    for (const name of ["top/a", "top/z"]) await writeFile(directory.at(name), "content");
    await using mount = await fuseMount("hanging_mount", hung);
    await using agent = await startAgent();
    using calls = new TreeCalls(agent);
    using files = new FileCalls(agent);
    const listed = async (crossMounts: boolean): Promise<string[]> => {
      const entries = await calls.list({ path: directory.at("top"), depth: 2, crossMounts });
      return entries.map(({ name, errno }) => `${Buffer.from(name).toString()} ${errno}`).toSorted();
    };
    for (const crossMounts of [false, true])
      assert.deepEqual(await listed(crossMounts), ["a ", "hung ETIMEDOUT", "z "]);
    await failsWith(calls.list({ path: hung }), status.FAILED_PRECONDITION, "FILE_SYSTEM_HUNG", { mount: hung });
    assert.equal((await files.read(directory.at("top/a"))).data.toString(), "content");
    const removed = await calls.remove({ path: directory.at("top"), recursive: true });
    assert.deepEqual(removed, { removed: 2, left: 1, entries: { hung: "EBUSY" } });
    await mount[Symbol.asyncDispose]();
    assert.deepEqual(await agent.stop(), { code: 0, signal: null });
  });
});
