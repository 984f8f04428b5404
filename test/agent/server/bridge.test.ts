import assert from "node:assert/strict";
import { type ChildProcess, type ChildProcessByStdio, execFileSync, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { closeSync, openSync, symlinkSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import type { Socket } from "node:net";
import { constants } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { describe, test, type TestContext } from "node:test";
import { buildNative } from "../../../scripts/build-native.ts";
import { sourceCommand } from "../../../scripts/testing/compiled.ts";
import { connect } from "../../../src/node/client/index.ts";
import { AGENT_SCRIPT, AGENT_TOKEN, type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { makeLauncherBundle } from "../../fixtures/bundles.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { listener } from "../../fixtures/listeners.ts";
import { processGone } from "../../fixtures/proc.ts";
import { addon } from "../../fixtures/spawning.ts";

const [NODE, ...ARGS] = sourceCommand("agent/main.ts");
const BRIDGE = [...ARGS, "bridge"];
const MEBIBYTE = 1024 * 1024;
/** More than all buffers on the way hold. */
const MORE_THAN_FITS_BYTES = 64 * MEBIBYTE;
const BUFFERS_BYTES = 16 * MEBIBYTE;

type Bridge = ChildProcessByStdio<Writable, Readable, Readable>;

describe("guest-agent bridge", () => {
  test("`bridge` carries every byte both ways and forwards the end of input", async (t) => {
    const { path } = await listen(t, (socket) => socket.pipe(socket));
    const child = start(path);
    const input = randomBytes(100 * MEBIBYTE);
    child.stdin.end(input);
    const [output, errors, status] = await Promise.all([buffer(child.stdout), text(child.stderr), exitOf(child)]);
    assert.deepEqual([errors, status], ["", 0]);
    assert.ok(output.equals(input), `${output.length} bytes came back`);
  });

  test("`bridge` exits when the agent disconnects while standard input is open", async (t) => {
    const { path } = await listen(t, (socket) => socket.end("farewell"));
    const child = start(path);
    assert.equal(await text(child.stdout), "farewell");
    assert.equal(await exitOf(child), 0);
  });

  test("`bridge` exits with 0 when the agent disconnects", async (t) => {
    const { path } = await listen(t, (socket) => void socket.once("data", () => socket.destroy()));
    const child = start(path);
    child.stdin.write("hello");
    assert.deepEqual(await Promise.all([text(child.stdout), text(child.stderr), exitOf(child)]), ["", "", 0]);
  });

  test("when the host disconnects, `bridge` exits and the host's calls end", async (t) => {
    const { path, directory } = await listen(t);
    await using _agent = await agentOn(path);
    const dialled = join(directory, "dialled.sock");
    const bridges: Bridge[] = [];
    await using server = await listener(
      (connection) => {
        const child = start(path);
        bridges.push(child);
        connection.pipe(child.stdin);
        child.stdout.pipe(connection);
      },
      { path: dialled },
    );
    using client = connect({ address: `unix:${dialled}`, token: AGENT_TOKEN });
    const command = client.start(["sleep", "1000"]);
    const lost = assert.rejects(command.wait(), { status: "UNAVAILABLE" });
    const pid = await command.started;
    const [bridge] = bridges;
    assert.ok(bridge);
    for (const stream of [server.sockets[0], bridge.stdin, bridge.stdout]) stream?.destroy();
    await exitOf(bridge);
    await processGone(pid);
    await lost;
  });

  test("`bridge` applies backpressure in one direction without blocking the other", async (t) => {
    const received = Promise.withResolvers<Socket>();
    const { path } = await listen(t, (socket) => {
      socket.write(Buffer.alloc(MORE_THAN_FITS_BYTES));
      let length = 0;
      socket.on("data", (bytes) => {
        length += bytes.length;
        if (length === MORE_THAN_FITS_BYTES) received.resolve(socket);
      });
    });
    const child = start(path);
    child.stdin.write(Buffer.alloc(MORE_THAN_FITS_BYTES));
    const socket = await received.promise;
    const taken = MORE_THAN_FITS_BYTES - socket.writableLength;
    assert.ok(taken < BUFFERS_BYTES, `${taken} bytes were taken though nobody reads them`);
    socket.end();
    child.stdin.end();
    assert.equal((await buffer(child.stdout)).length, MORE_THAN_FITS_BYTES);
    assert.equal(await exitOf(child), 0);
  });

  test("`bridge` accepts files and devices as standard input and output", async (t) => {
    const { path, directory } = await listen(t, (socket) => socket.pipe(socket));
    await writeFile(join(directory, "in"), randomBytes(MEBIBYTE));
    const [input, output, none] = [
      openSync(join(directory, "in"), "r"),
      openSync(join(directory, "out"), "w"),
      openSync("/dev/null", "r+"),
    ];
    const child = spawn(NODE, [...BRIDGE, path], { stdio: [input, output, "inherit"] });
    assert.equal(await exitOf(child), 0);
    assert.deepEqual(await readFile(join(directory, "out")), await readFile(join(directory, "in")));
    const idle = spawn(NODE, [...BRIDGE, path], { stdio: [none, none, "inherit"] });
    assert.equal(await exitOf(idle), 0);
    for (const fd of [input, output, none]) closeSync(fd);
  });

  test("`bridge` rejects a terminal that is not in raw mode", async (t) => {
    const { path } = await listen(t, (socket) => socket.pipe(socket));
    const ends = addon.openTerminal(80, 24);
    assert.ok(typeof ends !== "number");
    const [master, slave] = ends;
    const run = (): ChildProcess => spawn(NODE, [...BRIDGE, path], { stdio: [slave, slave, "pipe"] });
    const refused = run();
    assert.ok(refused.stderr);
    const [errors, status] = await Promise.all([text(refused.stderr), exitOf(refused)]);
    assert.equal(status, 64);
    assert.match(errors, /terminal in line mode, which would change the bytes/);
    execFileSync("stty", ["raw", "-echo"], { stdio: [slave, "ignore", "inherit"] });
    const taken = run();
    closeSync(slave);
    // The bridge is the terminal's last user: it ends with the line.
    closeSync(master);
    assert.equal(await exitOf(taken), 0);
  });

  test("`bridge` reports a missing listener or socket path on stderr, not stdout", () => {
    for (const [args, code, words] of [
      [["/no/such/socket"], 69, /\/no\/such\/socket: ENOENT/],
      [[], 64, /pass it as the argument or set SVC_GUEST_SOCKET/],
    ] as const) {
      const { stdout, stderr, status } = spawnSync(NODE, [...BRIDGE, ...args], { env: {}, encoding: "utf8" });
      assert.deepEqual([stdout, status], ["", code]);
      assert.match(stderr, words);
    }
  });

  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    test(`bridge exits on ${signal} under the launcher without a crash report`, async (t) => {
      const accepted = Promise.withResolvers<void>();
      const { path } = await listen(t, (socket) => void socket.once("data", () => accepted.resolve()));
      using bundle = makeLauncherBundle();
      symlinkSync(buildNative(), join(bundle.directory, "agent.node"));
      const child = spawn(bundle.launcher, [AGENT_SCRIPT, "bridge"], {
        env: { SVC_GUEST_SOCKET: path },
        stdio: ["pipe", "pipe", "pipe"],
      });
      child.stdin.write("hello");
      await accepted.promise;
      child.kill(signal);
      const [errors, status] = await Promise.all([text(child.stderr), exitOf(child)]);
      assert.deepEqual([errors, status], ["", 128 + constants.signals[signal]]);
    });
  }

  test("`bridge` carries gRPC calls to the socket in SVC_GUEST_SOCKET", async (t) => {
    const { path } = await listen(t);
    await using _agent = await agentOn(path);
    const bridge = [NODE, ...BRIDGE];
    using client = connect({ bridge, env: { SVC_GUEST_SOCKET: path }, token: AGENT_TOKEN });
    const { stdout, exitCode: code } = await client.run(["tr", "a-z", "A-Z"], { input: "hello sandbox" });
    assert.deepEqual([stdout, code], ["HELLO SANDBOX", 0]);
  });
});

function start(path: string): Bridge {
  const child = spawn(NODE, [...BRIDGE, path], { stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.on("error", () => undefined);
  return child;
}

/** A socket in a directory of its own: served by `serve`, or only its path. */
async function listen(
  t: TestContext,
  serve?: (socket: Socket) => void,
): Promise<{ readonly path: string; readonly directory: string }> {
  const directory = await testDirectory();
  t.after(() => directory[Symbol.asyncDispose]());
  const path = directory.at("agent.sock");
  const server = serve && (await listener(serve, { path }));
  t.after(() => server?.[Symbol.asyncDispose]());
  return { path, directory: directory.path };
}

/** An agent with this listener alone. */
function agentOn(path: string): Promise<RunningAgent> {
  const none = ["SVC_GUEST_PORT", "SVC_TLS_CERT_FILE", "SVC_TLS_KEY_FILE", "SVC_TLS_CLIENT_CA_FILE"];
  return startAgent({
    env: { SVC_GUEST_SOCKET: path, ...Object.fromEntries(none.map((name) => [name, undefined])) },
  });
}

async function exitOf(child: ChildProcess): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  return child.exitCode;
}
