import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { type TestDirectory, testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { NEEDS_FUSE } from "../../fixtures/privileges.ts";
import { fuseMount } from "../../fixtures/programs/index.ts";
import { agentForAllTests, GUESTCTL } from "../guestctl/guestctl.ts";

const client = forAllTests(clientOf(forAllTests(await startAgent())));
const { env } = await agentForAllTests();

interface Options {
  readonly signal?: AbortSignal;
  readonly requestTimeoutMs?: number;
}

/** A copy from or to a local directory with a file system that does not answer. */
interface HungCopy {
  readonly title: string;
  readonly mountPoint: string;
  readonly copy: (directory: TestDirectory, options: Options) => Promise<unknown>;
  /** Arguments of `guestctl cp`. */
  readonly paths: (directory: TestDirectory) => readonly [string, string];
}

const COPIES: readonly HungCopy[] = [
  {
    title: "files.upload of a hung directory",
    mountPoint: "tree",
    copy: (directory, options) => client.files.upload(directory.at("tree"), directory.at("copy"), options),
    paths: (directory) => [directory.at("tree"), `:${directory.at("copy")}`],
  },
  {
    title: "files.upload with a hung subdirectory",
    mountPoint: "tree/hung",
    copy: (directory, options) => client.files.upload(directory.at("tree"), directory.at("copy"), options),
    paths: (directory) => [directory.at("tree"), `:${directory.at("copy")}`],
  },
  {
    title: "files.download into a hung directory",
    mountPoint: "hung",
    copy: (directory, options) => client.files.download(directory.at("source"), directory.at("hung"), options),
    paths: (directory) => [`:${directory.at("source")}/.`, directory.at("hung")],
  },
];

async function trees(): Promise<TestDirectory> {
  const directory = await testDirectory();
  for (const name of ["tree", "source"]) {
    await mkdir(directory.at(name));
    await writeFile(directory.at(`${name}/file`), "content");
  }
  return directory;
}

/** Whether a thread of the process waits for a FUSE server. */
function isHung(pid: number | undefined): boolean {
  const waits = (thread: string): string => {
    try {
      return readFileSync(`/proc/${pid}/task/${thread}/wchan`, "latin1");
    } catch {
      // The thread has ended.
      return "";
    }
  };
  return readdirSync(`/proc/${pid}/task`).some((thread) => /fuse|request_wait_answer/.test(waits(thread)));
}

for (const { title, mountPoint, copy, paths } of COPIES)
  describe(title, NEEDS_FUSE, () => {
    it(`${title} leaves the event loop free and ends at an abort`, async () => {
      await using directory = await trees();
      await using mount = await fuseMount("hanging_mount", directory.at(mountPoint), ["take"]);
      const taken = once(mount.server.stdout, "data");
      const aborting = new AbortController();
      const failed = failureOf(copy(directory, { signal: aborting.signal }));
      // With a blocked event loop, this process would not see the server's output.
      await taken;
      aborting.abort(new Error("enough"));
      const { code, cause } = await failed;
      assert.deepEqual([code, cause], ["ABORT_ERR", aborting.signal.reason]);
    });

    it(`${title} ends at its time limit`, async () => {
      await using directory = await trees();
      await using _mount = await fuseMount("hanging_mount", directory.at(mountPoint), ["take"]);
      assert.equal((await failureOf(copy(directory, { requestTimeoutMs: 100 }))).status, "DEADLINE_EXCEEDED");
    });

    it(`SIGINT ends guestctl cp at once: ${title}`, async () => {
      await using directory = await trees();
      await using _mount = await fuseMount("hanging_mount", directory.at(mountPoint));
      await interruptHung(paths(directory));
    });
  });

describe("guestctl cp of a single file beside a hung file system", NEEDS_FUSE, () => {
  it("SIGINT ends `guestctl cp` of a file in a hung directory", async () => {
    await using directory = await trees();
    await using _mount = await fuseMount("hanging_mount", directory.at("tree"));
    await interruptHung([directory.at("tree/file"), `:${directory.at("copy")}`]);
  });

  it("SIGINT ends `guestctl cp` of a file into a hung directory", async () => {
    await using directory = await trees();
    await writeFile(directory.at("large"), Buffer.alloc(1024 * 1024, "x"));
    await using mount = await fuseMount("hanging_mount", directory.at("hung"), ["stop"]);
    const stopped = once(mount.server.stdout, "data");
    await interruptHung([`:${directory.at("large")}`, directory.at("hung/large")], stopped);
  });
});

/** Sends SIGINT to `guestctl cp` once a call of it hangs. It must then end by that signal. */
async function interruptHung(
  paths: readonly [string, string],
  begun: Promise<unknown> = Promise.resolve(),
): Promise<void> {
  const [file, ...before] = GUESTCTL;
  const copying = spawn(file, [...before, "cp", ...paths], { env, stdio: ["ignore", "ignore", "pipe"] });
  const ended = once(copying, "exit");
  let stderr = "";
  copying.stderr.on("data", (bytes: Buffer) => (stderr += bytes.toString()));
  await begun;
  await until(
    () => isHung(copying.pid),
    () => `guestctl hangs: ${stderr}`,
  );
  copying.kill("SIGINT");
  assert.deepEqual(await ended, [null, "SIGINT"], stderr);
}
