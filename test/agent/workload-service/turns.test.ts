import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { WorkloadServer } from "../../../src/agent/workload-service/server.ts";
import { frame, PREFACE } from "../../fixtures/raw-http2.ts";
import { recordingLog } from "../../fixtures/recording-log.ts";
import { systemClock } from "../../fixtures/system-clock.ts";

const PATH = "/svc.guest.v1alpha1.WorkloadService/DeclareIdle";
const FLOODS = 60;
/** CPU time, to which other load adds nothing: several times the usual, and well below that of all floods. */
const ANSWER_LIMIT_MS = 2000;

describe("connections of the workload that take turns", () => {
  test("do not stop the agent when each sends as many cancelled calls as fit into its socket", async () => {
    await using rig = await start();
    assert.match(await answer(rig.path, request("{}")), /^HTTP\/1\.1 200 OK/);
    const flood = cancelledCalls(2500);
    const sockets = await Promise.all(Array.from({ length: FLOODS }, () => connect(rig.path)));
    const closed = Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once("close", resolve))));
    const before = process.cpuUsage();
    for (const socket of sockets) socket.resume().write(flood);
    assert.match(await answer(rig.path, request("{}")), /^HTTP\/1\.1 200 OK/);
    const { user, system } = process.cpuUsage(before);
    const tookMs = Math.round((user + system) / 1000);
    await closed;
    assert.ok(tookMs < ANSWER_LIMIT_MS, `another connection's request took ${tookMs} ms of CPU`);
  });

  test("hand on every byte, in pieces of any size", async () => {
    await using rig = await start();
    const text = request(JSON.stringify({ x: "y".repeat(60_000) }));
    for (const size of [1, 2047, 2049, text.length]) {
      const socket = await connect(rig.path);
      const whole = size === 1 ? request("{}") : text;
      for (let at = 0; at < whole.length; at += size) {
        socket.write(whole.slice(at, at + size));
        await new Promise((resolve) => setImmediate(resolve));
      }
      assert.match(await textOf(socket), /^HTTP\/1\.1 200 OK\r\n[^]*"declaredAt"/);
    }
  });

  test("answer a client that has closed its half, and refuse it a body over 64 KiB", async () => {
    await using rig = await start();
    assert.match(await answer(rig.path, request("{}"), "half-closed"), /^HTTP\/1\.1 200 OK/);
    const long = request(JSON.stringify({ x: "y".repeat(70_000) }));
    assert.match(await answer(rig.path, long, "half-closed"), /^HTTP\/1\.1 429 /);
  });

  test("end when their client is gone in the middle of a request, and when the server is closed", async () => {
    await using rig = await start();
    const gone = await connect(rig.path);
    gone.write(request("{}").slice(0, -1), () => gone.destroy());
    const open = await connect(rig.path);
    const closed = new Promise((resolve) => open.resume().once("close", resolve));
    open.write(request("{}").slice(0, -1));
    assert.match(await answer(rig.path, request("{}")), /^HTTP\/1\.1 200 OK/);
    rig.server.close();
    await closed;
  });
});

interface Rig extends AsyncDisposable {
  readonly path: string;
  readonly server: WorkloadServer;
}

async function start(): Promise<Rig> {
  const dir = await mkdtemp(join(tmpdir(), "guest-agent-"));
  const path = join(dir, "workload.sock");
  const idle = { declare: (): bigint => 1n };
  const server = new WorkloadServer({ idle, agentVersion: "0", log: recordingLog(), clock: systemClock });
  await server.listen(path);
  return {
    path,
    server,
    [Symbol.asyncDispose]: async () => {
      server.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

function request(body: string): string {
  return `POST ${PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

async function connect(path: string): Promise<net.Socket> {
  const socket = net.connect(path);
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

async function answer(path: string, text: string, then?: "half-closed"): Promise<string> {
  const socket = await connect(path);
  socket.write(text);
  if (then === "half-closed") socket.end();
  return textOf(socket);
}

async function textOf(socket: net.Socket): Promise<string> {
  let text = "";
  socket.setEncoding("utf8");
  socket.on("data", (part: string) => (text += part));
  await new Promise((resolve) => socket.once("end", resolve).once("close", resolve));
  socket.destroy();
  return text;
}

/**
 * Pairs of HEADERS and RST_STREAM (RFC 9113, 6.2 and 6.4); all but the first name authority and path by their place in
 * HPACK's table.
 */
function cancelledCalls(count: number): Buffer {
  const literal = Buffer.concat([Buffer.from([0x83, 0x86, 0x41, 1, 0x78, 0x44, PATH.length]), Buffer.from(PATH)]);
  const indexed = Buffer.from([0x83, 0x86, 0xbf, 0xbe]);
  const cancel = Buffer.from([0, 0, 0, 8]);
  const calls = Array.from({ length: count }, (_, index) => [
    frame(1, 0x4, 2 * index + 1, index === 0 ? literal : indexed),
    frame(3, 0, 2 * index + 1, cancel),
  ]);
  return Buffer.concat([PREFACE, frame(4, 0, 0), ...calls.flat()]);
}
