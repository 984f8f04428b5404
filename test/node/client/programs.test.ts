import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { CommandError, type GuestClient, GuestError, isTransient } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { processGone } from "../../fixtures/proc.ts";

/*
 * What users of sandboxes write first, in the words that they know from e2b, execa and Node. If one of these programs
 * gets longer or needs a comment, the library's API got worse.
 */

const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

describe("programs of a user", () => {
  it("a test suite run in a sandbox streams its output and can be aborted", async () => {
    await using directory = await testDirectory();
    await client.files.writeFile(directory.at("test.sh"), "echo ok 1; echo ok 2; echo not ok 3 >&2; exit 1\n");
    const lines: string[] = [];
    const tests = client.run(["sh", "test.sh"], {
      cwd: directory.path,
      timeoutMs: 60_000,
      check: true,
      onStdout: (text) => lines.push(text),
    });
    await assert.rejects(tests, (error: CommandError) => {
      assert.ok(error instanceof CommandError);
      assert.deepEqual([error.exitCode, error.message], [1, "sh failed with exit code 1: not ok 3"]);
      return true;
    });
    assert.equal(lines.join(""), "ok 1\nok 2\n");

    const stop = new AbortController();
    const hanging = client.start(["sleep", "1000"], { signal: stop.signal });
    const pid = await hanging.started;
    stop.abort();
    await assert.rejects(hanging.wait(), { code: "ABORT_ERR" });
    await processGone(pid);
  });

  it("a project is uploaded and built, and its results are downloaded", async () => {
    await using directory = await testDirectory();
    await mkdir(directory.at("project/src"), { recursive: true });
    await mkdir(directory.at("project/node_modules"));
    await writeFile(directory.at("project/src/main.txt"), "source\n");
    await writeFile(directory.at("project/node_modules/large"), "not needed");
    const guest = directory.at("guest");
    await client.files.upload(directory.at("project"), guest, { exclude: ["node_modules"] });
    await client.run(["sh", "-c", "mkdir dist && tr a-z A-Z <src/main.txt >dist/main.txt"], {
      cwd: guest,
      check: true,
    });
    const { files } = await client.files.download(`${guest}/dist`, directory.at("results"));
    assert.equal(files, 1);
    assert.equal(await readFile(directory.at("results/main.txt"), "utf8"), "SOURCE\n");
    assert.deepEqual((await client.files.readdir(guest)).toSorted(), ["dist", "src"]);
  });

  it("a program connects a web socket to a terminal in a sandbox", async () => {
    const socket = new EventEmitter<{ message: [text: string] }>();
    let screen = "";
    const serve = async (send: (text: string) => void): Promise<number> => {
      await using shell = client.start(["sh"], { terminal: { cols: 80, rows: 24 } });
      socket.on("message", (message) => {
        const { keys, size } = JSON.parse(message) as { keys?: string; size?: { cols: number; rows: number } };
        if (keys !== undefined) shell.stdin.write(keys);
        if (size !== undefined) shell.resize(size.cols, size.rows);
      });
      for await (const text of shell.stdout) send(text);
      return (await shell.wait()).exitCode;
    };
    const served = serve((text) => (screen += text));
    socket.emit("message", JSON.stringify({ size: { cols: 100, rows: 30 } }));
    socket.emit("message", JSON.stringify({ keys: "stty size; exit 3\n" }));
    assert.equal(await served, 3);
    assert.match(screen, /30 100\r\n/);
  });

  it("a pool runs a job in another sandbox if one is unreachable", async () => {
    await using spare = await startAgent();
    const gone = await startAgent();
    const pool: GuestClient[] = [clientOf(gone), clientOf(spare)];
    await gone.stop();
    await gone[Symbol.asyncDispose]();
    const job = async (input: string): Promise<string> => {
      for (const sandbox of pool) {
        try {
          if (!(await sandbox.health({ requestTimeoutMs: 10_000 })).ready) continue;
          return (await sandbox.run(["tr", "a-z", "A-Z"], { input, check: true })).stdout;
        } catch (error) {
          if (!(error instanceof GuestError) || !(error.retryable || isTransient(error))) throw error;
        }
      }
      throw new Error("no sandbox is ready");
    };
    const jobs = Array.from({ length: 20 }, (_, number) => job(`job ${number}`));
    assert.deepEqual(
      await Promise.all(jobs),
      Array.from({ length: 20 }, (_, number) => `JOB ${number}`),
    );
    for (const sandbox of pool) sandbox.close();
  });
});
