import assert from "node:assert/strict";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { execa } from "execa";
import { connect, type ConnectOptions } from "../../../../../src/node/client/index.ts";
import { type SocketAgent, startSocketAgent } from "../../../../fixtures/agent.ts";
import { until } from "../../../../fixtures/awake.ts";
import { testDirectory } from "../../../../fixtures/files.ts";
import { forAllTests } from "../../../../fixtures/for-all-tests.ts";
import { failureOf } from "../../../../fixtures/guest-client.ts";
import { childrenOf } from "../../../../fixtures/proc.ts";

/*
 * The address vsock:CID:PORT. The tests' machine must not open sockets of AF_VSOCK, so a program of the same name stands
 * for socat, which clients find in PATH. It connects to a unix socket instead (socat(1): "-", "VSOCK-CONNECT").
 * test/vm/vsock-device.vm.ts has the real one.
 */

const ADDRESS = "vsock:3:7071";
const CLIENT = pathToFileURL(join(import.meta.dirname, "../../../../../src/node/client/index.ts")).href;
const agent: SocketAgent = forAllTests(await startSocketAgent());
const directory = forAllTests(await testDirectory("socat"));
const OTHERS = process.env["PATH"] ?? "";

/** Puts a shell script into the directory that is first in PATH, as socat. */
async function install(script: string): Promise<void> {
  await writeFile(directory.at("socat"), `#!/bin/sh\n${script}\n`);
  await chmod(directory.at("socat"), 0o755);
}

function options(address: string | readonly string[] = ADDRESS, connectTimeoutMs: number = 60_000): ConnectOptions {
  return { address, token: agent.token, connectTimeoutMs };
}

describe("an address vsock:CID:PORT", () => {
  beforeEach(() => {
    process.env["PATH"] = `${directory.path}:${OTHERS}`;
  });

  test("the client starts one socat for each connection to vsock:CID:PORT", async () => {
    const program = directory.at("socat.mjs");
    const text = `import { connect } from "node:net";
      const agent = connect({ path: ${JSON.stringify(agent.socketPath)}, allowHalfOpen: true });
      process.stdin.pipe(agent).pipe(process.stdout);`;
    await writeFile(program, text);
    await install(`echo "$@" >>'${directory.at("words")}'; exec '${process.execPath}' '${program}'`);
    using client = connect(options());
    assert.equal((await client.health()).alive, true);
    assert.equal(client.addressInUse, ADDRESS);
    const input = Buffer.alloc(3_000_000, "0123456789");
    const { stdout, exitCode } = await client.run(["sh", "-c", "cat; exit 7"], { input, encoding: "buffer" });
    assert.deepEqual([stdout.equals(input), exitCode], [true, 7]);
    assert.equal(await readFile(directory.at("words"), "utf8"), "- VSOCK-CONNECT:3:7071\n");
  });

  test("if socat fails, the vsock connection error quotes socat's standard error", async () => {
    await install(`echo 'socat[1] E connect(5, AF=40 cid:3 port:7071, 16): Connection reset by peer' >&2; exit 1`);
    using client = connect(options());
    const { status, message } = await failureOf(client.health());
    assert.equal(status, "UNAVAILABLE");
    assert.match(message, /^vsock:3:7071: socat failed: socat\[1\] E connect\(.*\): Connection reset by peer$/);
  });

  test("if socat is not installed, the vsock connection error says so", async () => {
    process.env["PATH"] = "/nonexistent";
    using client = connect(options());
    const { status, message } = await failureOf(client.health());
    assert.deepEqual([status, message], ["UNAVAILABLE", "vsock:3:7071: socat is not installed"]);
  });

  test("the client kills a socat that ignores SIGTERM, and uses the next address", async () => {
    // It has no children, which would outlive it.
    await install("trap '' TERM; exec sleep 600");
    const before = childrenOf(process.pid);
    const haveEnded = (): boolean => childrenOf(process.pid).every((pid) => before.includes(pid));
    const second = `unix:${agent.socketPath}`;
    {
      using client = connect(options([ADDRESS, second], 4_000));
      assert.equal((await client.health({ requestTimeoutMs: 60_000 })).alive, true);
      assert.equal(client.addressInUse, second);
      await until(haveEnded, "the socat of an address that is not in use has ended");
    }
    {
      // On a busy machine the limit of the whole attempt may pass first.
      using alone = connect(options(ADDRESS, 1_000));
      const { message } = await failureOf(alone.health({ requestTimeoutMs: 60_000 }));
      assert.match(message, /vsock:3:7071: nothing answers, or it does not speak HTTP\/2(?: within 900 ms)?$/);
    }
    await until(haveEnded, "every socat of a closed client has ended");
  });
});

describe("a client in a process that has no file descriptors left", () => {
  for (const [name, way] of [
    ["a bridge", { bridge: ["cat"] }],
    ["vsock:CID:PORT", { address: ADDRESS }],
  ] as const)
    test(`without free file descriptors, a call over ${name} fails and the process continues`, async () => {
      const program = directory.at("program.ts");
      const text = `import { closeSync, openSync } from "node:fs";
        import { connect } from ${JSON.stringify(CLIENT)};
        const client = connect({ ...JSON.parse(process.argv[2]), token: "t" });
        const opened = [];
        try { for (;;) opened.push(openSync("/dev/null")); } catch {}
        // Enough for the connection to the private listener, but not for the streams of a command.
        for (let n = 0; n < 4; n++) closeSync(opened.pop());
        let message = "";
        await client.health().catch((error) => (message = error.message));
        for (const fd of opened) closeSync(fd);
        client.close();
        process.stdout.write(message);`;
      await writeFile(program, text);
      // Says nothing, like a VMM without a listener, and ends with its client, even if the client could start it.
      await install("exec cat >/dev/null");
      const command = 'ulimit -n 200; exec "$@"';
      const { stdout } = await execa("sh", ["-c", command, "sh", process.execPath, program, JSON.stringify(way)]);
      assert.match(stdout, /: this process has too many open files$/);
    });
});
