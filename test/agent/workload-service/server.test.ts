import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import net from "node:net";
import { describe, test } from "node:test";
import { Code, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { WorkloadService } from "../../../src/shared/gen/svc/guest/v1alpha1/workload_pb.ts";
import type { WorkloadLimits } from "../../../src/agent/workload-service/limits.ts";
import { WorkloadServer } from "../../../src/agent/workload-service/server.ts";
import { until } from "../../fixtures/awake.ts";
import { postJson } from "../../fixtures/declare-idle.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { CODE, envelope, type Field, FLAG, FRAME, frame, PREFACE, RawHttp2, uint32 } from "../../fixtures/raw-http2.ts";
import { recordingLog } from "../../fixtures/recorders.ts";
import { managementServices } from "../../fixtures/services.ts";
import { systemClock } from "../../fixtures/clocks.ts";

const DECLARE_IDLE = "/svc.guest.v1alpha1.WorkloadService/DeclareIdle";
const JSON_HEAD = `POST ${DECLARE_IDLE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n`;
const HEAD: readonly Field[] = [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", DECLARE_IDLE],
];
const DECLARED_AT_NS = 1_700_000_000_123_456_789n;

type Rig = Awaited<ReturnType<typeof start>>;

async function start(limits: Partial<WorkloadLimits> = {}, unforeseen?: Error) {
  const directory = await testDirectory();
  const path = directory.at("missing/workload.sock");
  const log = recordingLog();
  let calls = 0;
  let served = 0;
  const server = new WorkloadServer({
    get idle() {
      served += 1;
      if (served === 1 && unforeseen !== undefined) throw unforeseen;
      return { declare: () => (calls++, DECLARED_AT_NS) };
    },
    agentVersion: "9.9.9",
    log,
    clock: systemClock,
    limits,
  });
  await server.listen(path);
  return {
    path,
    server,
    log,
    calls: () => calls,
    [Symbol.asyncDispose]: async () => {
      server.close();
      await directory[Symbol.asyncDispose]();
    },
  };
}

describe("the workload's socket", () => {
  test("a workload connection whose handler throws is dropped and logged; the next one works", async () => {
    await using rig = await start({}, new Error("unforeseen"));
    await assert.rejects(postJson(rig.path), { code: "ECONNRESET" });
    const fields = { task: "workload connection", problem: "unforeseen" };
    assert.deepEqual(rig.log.lines.slice(1), [{ level: "error", event: "background_failed", fields }]);
    assert.equal((await postJson(rig.path)).status, 200);
  });

  test("WorkloadServer removes its own socket but not one that replaced it", async () => {
    for (const isReplaced of [false, true]) {
      await using rig = await start();
      const other = net.createServer((socket) => socket.end("other"));
      if (isReplaced) {
        await rm(rig.path);
        await once(other.listen(rig.path), "listening");
      }
      rig.server.close();
      assert.equal(existsSync(rig.path), isReplaced);
      if (isReplaced) assert.equal(String((await once(net.connect(rig.path), "data"))[0]), "other");
      other.close();
    }
  });

  test("DeclareIdle works with gRPC and Connect clients", async () => {
    await using rig = await start();
    const baseUrl = "http://localhost";
    const sessionManager = new Http2SessionManager(baseUrl, {}, { createConnection: () => net.connect(rig.path) });
    const socketPath = rig.path;
    const transports = [
      createGrpcTransport({ baseUrl, sessionManager }),
      createConnectTransport({ baseUrl, httpVersion: "1.1", nodeOptions: { socketPath } }),
    ];
    for (const transport of transports) {
      assert.equal((await createClient(WorkloadService, transport).declareIdle({})).declaredAt?.nanos, 123_456_789);
    }
    sessionManager.abort();
  });

  test("the workload socket has no management method", async () => {
    await using rig = await start();
    for (const { typeName, methods } of await managementServices()) {
      for (const { name } of methods) {
        assert.equal((await postJson(rig.path, `/${typeName}/${name}`)).status, 404);
      }
    }
    assert.equal((await postJson(rig.path, "/")).status, 404);
  });

  test("WorkloadServer refuses an HTTP/2 body over 64 KiB before the body ends", async () => {
    await using rig = await start();
    using peer = await RawHttp2.dial({ socketPath: rig.path });
    for (const [type, field, refused] of [
      ["application/json", ":status", "429"],
      ["application/grpc", "grpc-status", String(Code.ResourceExhausted)],
    ] as const) {
      const long = peer.open([...HEAD, ["content-type", type]]);
      const bytes = type === "application/grpc" ? envelope(Buffer.alloc(70_000)) : Buffer.alloc(70_000, " ");
      peer.data(long, bytes.subarray(0, 64_000), false);
      await peer.next(({ type: kind, stream }) => kind === FRAME.windowUpdate && stream === long, "a wider window");
      peer.data(long, bytes.subarray(64_000), false);
      assert.equal(await fieldOf(peer, long, field), refused);
      assert.equal(await peer.resetCode(long), CODE.none);
    }
    assert.equal(rig.calls(), 0);
  });

  test("half-sent requests do not stop the workload server from serving or closing", async () => {
    await using rig = await start();
    const [gone, open] = [net.connect(rig.path), net.connect(rig.path)];
    const half = `${JSON_HEAD}Content-Length: 2\r\n\r\n{`;
    await new Promise((resolve) => gone.write(half, resolve));
    gone.destroy();
    await new Promise((resolve) => open.write(half, resolve));
    assert.equal(await declares(rig), true);
    const closed = once(open.resume(), "close");
    rig.server.close();
    await closed;
  });

  test("WorkloadServer ends an HTTP/2 connection at its maximum age", async () => {
    await using rig = await start({ connectionAgeMs: 200 });
    for (const reads of [true, false]) {
      // On a busy machine a connection may be too old before its call is answered.
      await until(async () => {
        using peer = await RawHttp2.dial({ socketPath: rig.path });
        const stream = peer.open([...HEAD, ["content-type", "application/grpc"]]);
        peer.send(frame(FRAME.data, FLAG.endStream, stream, envelope()));
        if ((await fieldOf(peer, stream, "grpc-status").catch(() => undefined)) !== "0") return false;
        if (!reads) peer.stopReading();
        else assert.equal(await peer.goawayCode(), CODE.none);
        await until(() => rig.server.connections === 0, "the agent has closed the connection");
        return true;
      }, "a call is answered");
    }
  });

  test("WorkloadServer closes an HTTP/2 connection that only cancels calls", async () => {
    await using rig = await start();
    using peer = await RawHttp2.dial({ socketPath: rig.path });
    while (!peer.isEnded) {
      peer.send(frame(FRAME.reset, 0, peer.open([...HEAD, ["content-type", "application/json"]]), uint32(CODE.cancel)));
      await peer.flushed();
    }
    const line = await rig.log.logged("connection_failed");
    assert.match(
      String(line.fields["reason"]),
      /^too many requests that were cancelled or refused \(ENHANCE_YOUR_CALM\)$/,
    );
    assert.equal(await declares(rig), true);
  });

  test("WorkloadServer ends silent connections and unfinished requests", async () => {
    await using rig = await start({ headersTimeoutMs: 300, requestTimeoutMs: 300 });
    const starts = [
      "",
      "PRI * HT",
      "POST /x HTTP/1.1\r\nHost: x\r\n",
      `POST ${DECLARE_IDLE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{`,
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for (const words of starts) {
      const socket = net.connect(rig.path);
      socket.on("error", () => {});
      socket.write(words);
      await new Promise((resolve) => socket.resume().once("close", resolve));
    }
    await until(() => declares(rig), "a request is fast enough");
  });

  test("WorkloadServer ends unfinished HTTP/2 requests and idle connections", async () => {
    await using rig = await start({ requestTimeoutMs: 300, idleTimeoutMs: 600 });
    using peer = await RawHttp2.dial({ socketPath: rig.path });
    const stream = peer.open([...HEAD, ["content-type", "application/json"]]);
    peer.data(stream, Buffer.from("{"), false);
    assert.equal(await peer.resetCode(stream), CODE.cancel);
    await peer.ended();
    await until(() => declares(rig), "a request is fast enough");
  });

  const H2_REQUEST = Buffer.concat([PREFACE, frame(FRAME.settings, 0, 0)]);
  for (const [what, bytes] of [
    ["half a request line", Buffer.from("POST /")],
    ["half of their headers", Buffer.from(JSON_HEAD)],
    ["no body after their headers", Buffer.from(`${JSON_HEAD}Content-Length: 2\r\n\r\n`)],
    ["no request after HTTP/2's preface", H2_REQUEST],
  ] as const)
    test(`DeclareIdle succeeds among 64 connections that send ${what}`, async () => {
      await using rig = await start();
      const sockets = Array.from({ length: 64 }, () => net.connect(rig.path));
      for (const socket of sockets) socket.on("error", () => {});
      await Promise.all(sockets.map((socket) => once(socket, "connect")));
      for (const socket of sockets) socket.write(bytes);
      await until(() => rig.server.connections === 64, "the server has all of them");
      // It has read what they sent: it answers another connection's later bytes.
      for (let turn = 0; turn < 200; turn++) await new Promise((resolve) => setImmediate(resolve));
      for (let count = 0; count < 3; count++) assert.equal(await declares(rig), true);
      for (const socket of sockets) socket.destroy();
    });

  test("DeclareIdle succeeds among 200 silent connections", async () => {
    await using rig = await start();
    const sockets = Array.from({ length: 200 }, () => net.connect(rig.path));
    for (const socket of sockets) socket.on("error", () => {});
    await Promise.all(sockets.map((socket) => once(socket, "connect")));
    assert.equal(await declares(rig), true);
    for (const socket of sockets) socket.destroy();
  });
});

/** A field of an answer's header or trailers, as soon as it has come. */
async function fieldOf(peer: RawHttp2, stream: number, name: string): Promise<string | undefined> {
  const { fields } = await peer.next((each) => each.stream === stream && each.fields?.has(name) === true, name);
  return fields?.get(name);
}

function declares({ path }: Rig): Promise<boolean> {
  return postJson(path).then(
    ({ status }) => status === 200,
    () => false,
  );
}
