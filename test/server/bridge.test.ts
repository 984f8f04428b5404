import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { Client, credentials } from "@grpc/grpc-js";
import { startAgent } from "../fixtures/agent.ts";
import { ExecStream } from "../fixtures/exec-stream.ts";

const MAIN = join(import.meta.dirname, "../../src/main.ts");
const MEBIBYTE = 1024 * 1024;

describe("guest-agent bridge", { timeout: 60_000 }, () => {
  test("carries every byte both ways, and the end of its input", async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "bridge-test-"));
    t.after(() => rm(folder, { recursive: true, force: true }));
    const path = join(folder, "echo.sock");
    const server = createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket)).listen(path);
    t.after(() => server.close());
    await once(server, "listening");
    const child = spawn(process.execPath, [MAIN, "bridge", path], { stdio: ["pipe", "pipe", "pipe"] });
    const input = randomBytes(100 * MEBIBYTE);
    child.stdin.end(input);
    const [output, errors, status] = await Promise.all([buffer(child.stdout), text(child.stderr), exitOf(child)]);
    assert.deepEqual([errors, status], ["", 0]);
    assert.ok(output.equals(input), `${output.length} bytes came back`);
  });

  test("says on standard error alone that nobody listens", async () => {
    const child = spawn(process.execPath, [MAIN, "bridge", "/no/such/socket"], { stdio: ["pipe", "pipe", "pipe"] });
    const [output, errors, status] = await Promise.all([text(child.stdout), text(child.stderr), exitOf(child)]);
    assert.deepEqual([output, status], ["", 69]);
    assert.match(errors, /\/no\/such\/socket: ENOENT/);
  });

  test("carries gRPC calls to an agent that has no network port, its socket named by the environment", async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "bridge-test-"));
    t.after(() => rm(folder, { recursive: true, force: true }));
    const socket = join(folder, "guest.sock");
    const noNetwork = ["SVC_GUEST_PORT", "SVC_TLS_CERT_FILE", "SVC_TLS_KEY_FILE", "SVC_TLS_CLIENT_CA_FILE"];
    await using agent = await startAgent({
      env: { SVC_GUEST_SOCKET: socket, ...Object.fromEntries(noNetwork.map((name) => [name, undefined])) },
    });
    const dialled = join(folder, "bridge.sock");
    const server = createServer((connection) => {
      const child = spawn(process.execPath, [MAIN, "bridge"], {
        env: { SVC_GUEST_SOCKET: socket },
        stdio: ["pipe", "pipe", "inherit"],
      });
      connection.on("error", () => child.stdin.end()).pipe(child.stdin);
      child.stdin.on("error", () => {});
      child.stdout.pipe(connection);
    }).listen(dialled);
    t.after(() => server.close());
    await once(server, "listening");
    const client = new Client(`unix:${dialled}`, credentials.createInsecure(), {
      "grpc.max_receive_message_length": -1,
    });
    t.after(() => client.close());
    const input = randomBytes(8 * MEBIBYTE);
    const stream = new ExecStream(agent, client).start({ args: ["cat"], stdin: true });
    for (let at = 0; at < input.length; at += MEBIBYTE) stream.stdin(input.subarray(at, at + MEBIBYTE));
    const { stdout, exit } = await stream.end().outcome();
    assert.equal(exit.code, 0);
    assert.ok(stdout.equals(input));
    const failure = await new ExecStream({ ...agent, token: "wrong" }, client).start({ args: ["true"] }).failure();
    assert.equal(failure.reason, "UNAUTHENTICATED");
  });
});

async function exitOf(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve) => {
    child.on("exit", resolve);
  });
}
