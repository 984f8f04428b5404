import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import * as grpc from "@grpc/grpc-js";
import { ExecSessions } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { FileTree } from "../../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { Lifecycle } from "../../../src/shared/gen/svc/guest/v1alpha1/lifecycle_pb.ts";
import { Tunnel } from "../../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { DeclareIdleResponseSchema, WorkloadService } from "../../../src/shared/gen/svc/guest/v1alpha1/workload_pb.ts";
import type { WorkloadLimits } from "../../../src/agent/workload-service/limits.ts";
import { WorkloadServer } from "../../../src/agent/workload-service/server.ts";
import { until } from "../../fixtures/awake.ts";
import { testFolder } from "../../fixtures/files.ts";
import { CODE, envelope, FLAG, FRAME, frame, RawHttp2 } from "../../fixtures/raw-http2.ts";
import { type RecordingLog, recordingLog } from "../../fixtures/recording-log.ts";
import type { Field } from "../http2/hpack-vectors.ts";
import { systemClock } from "../../fixtures/system-clock.ts";

const DECLARE_IDLE = "/svc.guest.v1alpha1.WorkloadService/DeclareIdle";
const JSON_TYPE = { "content-type": "application/json" };
/** The first is the one of gRPC's C core. */
const AUTHORITIES = ["tmp%2Fw.sock", "[", "%", "x:y:z", "localhost:99999", "[::1"];
const DECLARED_AT_NS = 1_700_000_000_123_456_789n;
const DECLARED_AT = "2023-11-14T22:13:20.123456789Z";

interface Rig extends AsyncDisposable {
  readonly path: string;
  readonly server: WorkloadServer;
  readonly log: RecordingLog;
  calls(): number;
}

async function start(limits: Partial<WorkloadLimits> = {}): Promise<Rig> {
  const folder = await testFolder();
  const path = folder.at("missing/workload.sock");
  const log = recordingLog();
  let calls = 0;
  const server = new WorkloadServer({
    idle: {
      declare: () => {
        calls++;
        return DECLARED_AT_NS;
      },
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
      await folder[Symbol.asyncDispose]();
    },
  };
}

describe("the workload's socket", () => {
  test("drops a connection that it fails to serve, says so in the log, and serves the next", async () => {
    await using folder = await testFolder();
    const path = folder.at("workload.sock");
    const log = recordingLog();
    let served = 0;
    const server = new WorkloadServer({
      get idle() {
        served += 1;
        if (served === 1) throw new Error("unforeseen");
        return { declare: () => DECLARED_AT_NS };
      },
      agentVersion: "9.9.9",
      log,
      clock: systemClock,
    });
    await server.listen(path);
    try {
      const ask = { socketPath: path, path: DECLARE_IDLE, method: "POST", headers: JSON_TYPE, agent: false };
      await assert.rejects(once(http.request(ask).end("{}"), "response"), { code: "ECONNRESET" });
      const fields = { task: "workload connection", problem: "unforeseen" };
      assert.deepEqual(log.lines.slice(1), [{ level: "error", event: "background_failed", fields }]);
      const [response] = (await once(http.request(ask).end("{}"), "response")) as [http.IncomingMessage];
      assert.equal(response.resume().statusCode, 200);
    } finally {
      server.close();
    }
  });

  test("removes its path at its end, but not the socket that another process has put there since", async () => {
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

  test("answers plain HTTP/1.1 byte by byte, and a request whose headers come in one piece with its body", async () => {
    await using rig = await start();
    assert.deepEqual(await post(rig.path, DECLARE_IDLE, "{}"), {
      status: 200,
      body: `{"declaredAt":"${DECLARED_AT}"}`,
    });
    const request = `POST ${DECLARE_IDLE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`;
    for (const size of [1, request.length]) {
      const socket = net.connect(rig.path);
      for (let at = 0; at < request.length; at += size) {
        socket.write(request.slice(at, at + size));
        await new Promise((resolve) => setImmediate(resolve));
      }
      assert.match(await text(socket), /^HTTP\/1\.1 200 OK\r\n[^]*declaredAt/);
    }
  });

  test("answers gRPC of grpc-js", async () => {
    await using rig = await start();
    const client = new grpc.Client(`unix:${rig.path}`, grpc.credentials.createInsecure());
    const response = await new Promise<Buffer>((resolve, reject) => {
      client.makeUnaryRequest(
        DECLARE_IDLE,
        (bytes: Buffer) => bytes,
        (bytes) => bytes,
        Buffer.alloc(0),
        (error, value) => (error ? reject(error) : resolve(value ?? Buffer.alloc(0))),
      );
    });
    const { declaredAt } = fromBinary(DeclareIdleResponseSchema, response);
    assert.deepEqual([declaredAt?.seconds, declaredAt?.nanos], [1_700_000_000n, 123_456_789]);
    client.close();
  });

  test("answers gRPC and the Connect protocol of connect-node", async () => {
    await using rig = await start();
    const baseUrl = "http://localhost";
    const sessionManager = new Http2SessionManager(baseUrl, {}, { createConnection: () => net.connect(rig.path) });
    const socketPath = rig.path;
    const transports = [
      createGrpcTransport({ baseUrl, sessionManager }),
      createConnectTransport({ baseUrl, httpVersion: "1.1", nodeOptions: { socketPath } }),
    ];
    for (const transport of transports) {
      const { declaredAt } = await createClient(WorkloadService, transport).declareIdle({});
      assert.equal(declaredAt?.nanos, 123_456_789);
    }
    sessionManager.abort();
  });

  test("has no management method", async () => {
    await using rig = await start();
    const baseUrl = "http://localhost";
    const sessionManager = new Http2SessionManager(baseUrl, {}, { createConnection: () => net.connect(rig.path) });
    const client = createClient(GuestAgent, createGrpcTransport({ baseUrl, sessionManager }));
    await assert.rejects(
      client.health({}),
      (error) => error instanceof ConnectError && error.code === Code.Unimplemented,
    );
    sessionManager.abort();
    for (const { typeName, method } of [GuestAgent, ExecSessions, FileTree, Lifecycle, Tunnel]) {
      for (const { name } of Object.values(method)) {
        assert.equal((await post(rig.path, `/${typeName}/${name}`, "{}")).status, 404);
      }
    }
    assert.equal((await post(rig.path, "/", "{}")).status, 404);
  });

  test("refuses a body over 64 KiB and JSON that is none", async () => {
    await using rig = await start();
    assert.equal((await post(rig.path, DECLARE_IDLE, JSON.stringify({ x: "x".repeat(70_000) }))).status, 429);
    assert.equal((await post(rig.path, DECLARE_IDLE, "{")).status, 400);
    assert.equal((await post(rig.path, DECLARE_IDLE, '{"unknown":1}')).status, 200);
    assert.equal(rig.calls(), 1);
  });

  test("cares for no Host, over HTTP/1.0 and 1.1", async () => {
    await using rig = await start();
    const rest = `${Object.entries(JSON_TYPE)
      .map((field) => field.join(": "))
      .join("\r\n")}\r\nContent-Length: 2\r\n\r\n{}`;
    for (const version of ["1.0", "1.1"]) {
      for (const host of [
        "",
        "Host:\r\n",
        ...AUTHORITIES.map((authority) => `Host: ${authority}\r\n`),
        "Host: /a b\r\n",
      ]) {
        const socket = net.connect(rig.path);
        socket.write(`POST ${DECLARE_IDLE} HTTP/${version}\r\n${host}${rest}`);
        assert.match(await text(socket), /^HTTP\/1\.1 200 OK\r\n[^]*declaredAt/, `HTTP/${version} ${host}`);
      }
    }
  });

  test("cares for no authority and no Host over HTTP/2, whatever they hold, empty or absent", async () => {
    await using rig = await start();
    using peer = await RawHttp2.dial({ socketPath: rig.path });
    const values = [
      "",
      ...AUTHORITIES,
      "a b",
      "a\tb",
      '"',
      "<>",
      "\\",
      "\u00e9",
      "user:secret@host:1",
      "x".repeat(4_000),
    ];
    const heads: Field[][] = [
      [],
      ...values.map((value): Field[] => [[":authority", value]]),
      ...values.map((value): Field[] => [["host", value]]),
      [
        [":authority", "one"],
        ["host", "another"],
      ],
    ];
    for (const head of heads) {
      const pseudo = head.filter(([name]) => name.startsWith(":"));
      const regular = head.filter(([name]) => !name.startsWith(":"));
      const fields = [[":method", "POST"], [":scheme", "http"], ...pseudo, [":path", DECLARE_IDLE]] as const;
      for (const [type, message, status] of [
        ["application/json", Buffer.from("{}"), [":status", "200"]],
        ["application/grpc", envelope(), ["grpc-status", "0"]],
      ] as const) {
        const stream = peer.open([...fields, ...regular, ["content-type", type], ["te", "trailers"]]);
        peer.send(frame(FRAME.data, FLAG.endStream, stream, message));
        assert.equal(await fieldOf(peer, stream, status[0]), status[1], `${type} ${JSON.stringify(head)}`);
      }
    }
    assert.equal(rig.calls(), 2 * heads.length);
  });

  test("answers HTTP/2 without a body, in pieces, and with one that is too long, on one connection", async () => {
    await using rig = await start();
    using peer = await RawHttp2.dial({ socketPath: rig.path });
    const open = (path: string, type: string): number =>
      peer.open([
        [":method", "POST"],
        [":scheme", "http"],
        [":path", path],
        ["content-type", type],
      ]);
    const absent = open("/nothing", "application/json");
    peer.send(frame(FRAME.data, FLAG.endStream, absent));
    assert.equal(await fieldOf(peer, absent, ":status"), "404");
    const pieces = open(DECLARE_IDLE, "application/grpc");
    for (const byte of envelope()) peer.send(frame(FRAME.data, 0, pieces, Buffer.of(byte)));
    peer.send(frame(FRAME.data, FLAG.endStream, pieces));
    assert.equal(await fieldOf(peer, pieces, "grpc-status"), "0");
    for (const [type, field, refused] of [
      ["application/json", ":status", "429"],
      ["application/grpc", "grpc-status", String(grpc.status.RESOURCE_EXHAUSTED)],
    ] as const) {
      const long = open(DECLARE_IDLE, type);
      const bytes = type === "application/grpc" ? envelope(Buffer.alloc(70_000)) : Buffer.alloc(70_000, " ");
      // The request fills its window and never ends: the answer does not wait for the rest.
      for (let at = 0; at < 4; at++)
        peer.send(frame(FRAME.data, 0, long, bytes.subarray(at * 16_000, (at + 1) * 16_000)));
      await peer.next(({ type: kind, stream }) => kind === FRAME.windowUpdate && stream === long, "a wider window");
      peer.send(frame(FRAME.data, 0, long, bytes.subarray(64_000)));
      assert.equal(await fieldOf(peer, long, field), refused);
      assert.equal(await peer.resetCode(long), CODE.none);
    }
    assert.equal(rig.calls(), 1);
  });

  test("ends an HTTP/2 connection at its age, also where the peer reads nothing and keeps it open", async () => {
    await using rig = await start({ connectionAgeMs: 200 });
    const head: Field[] = [
      [":method", "POST"],
      [":scheme", "http"],
      [":path", DECLARE_IDLE],
      ["content-type", "application/grpc"],
    ];
    for (const reads of [true, false]) {
      // On a busy machine a connection may be too old before its call is answered.
      await until(async () => {
        using peer = await RawHttp2.dial({ socketPath: rig.path });
        const stream = peer.open(head);
        peer.send(frame(FRAME.data, FLAG.endStream, stream, envelope()));
        if ((await fieldOf(peer, stream, "grpc-status").catch(() => undefined)) !== "0") return false;
        if (!reads) peer.stopReading();
        else assert.equal(await peer.goawayCode(), CODE.none);
        await until(() => rig.server.connections === 0, "the agent has closed the connection");
        return true;
      }, "a call is answered");
    }
  });

  test("survives requests that are hardly HTTP", async () => {
    await using rig = await start();
    const requests = [
      "\r\n\r\n",
      "garbage\r\n\r\n",
      "PRI * HTTP/1.1\r\n\r\n",
      `POST ${DECLARE_IDLE} HTTP/1.1\r\nHost: x\r\nX: ${"y".repeat(20_000)}\r\n\r\n`,
      `POST ${DECLARE_IDLE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{}`,
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ngarbage and more of it, enough for a frame's head",
    ];
    for (const request of requests) {
      const socket = net.connect(rig.path);
      socket.on("error", () => {});
      socket.end(request);
      await new Promise((resolve) => socket.resume().once("close", resolve));
    }
    assert.equal((await post(rig.path, DECLARE_IDLE, "{}")).status, 200);
  });

  test("survives resets of all kinds", async () => {
    await using rig = await start();
    const session = http2.connect("http://localhost", { createConnection: () => net.connect(rig.path) });
    session.on("error", () => {});
    for (let code = 0; code <= 13; code++) {
      const stream = session.request({ ":method": "POST", ":path": DECLARE_IDLE, ":authority": "", ...JSON_TYPE });
      stream.on("error", () => {});
      stream.write("{");
      stream.close(code);
    }
    session.destroy();
    assert.equal((await post(rig.path, DECLARE_IDLE, "{}")).status, 200);
  });

  test("closes an HTTP/2 connection that makes calls only to cancel them", async () => {
    await using rig = await start();
    const session = http2.connect("http://localhost", { createConnection: () => net.connect(rig.path) });
    session.on("error", () => {});
    const closed = new Promise((resolve) => session.once("close", resolve));
    while (!session.closed && !session.destroyed) {
      const stream = session.request({ ":method": "POST", ":path": DECLARE_IDLE, ...JSON_TYPE });
      stream.on("error", () => {});
      stream.write("{", () => stream.close(http2.constants.NGHTTP2_CANCEL));
      await new Promise((resolve) => stream.once("close", resolve));
    }
    await closed;
    const line = await rig.log.logged("connection_failed");
    assert.match(String(line.fields["reason"]), /^too many requests that were broken off \(ENHANCE_YOUR_CALM\)$/);
    assert.equal((await post(rig.path, DECLARE_IDLE, "{}")).status, 200);
  });

  test("ends connections that send nothing, half a preface, or a request that never ends", async () => {
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

  test("ends an HTTP/2 request that never ends, and connections that are idle", async () => {
    await using rig = await start({ requestTimeoutMs: 300, idleTimeoutMs: 600 });
    const session = http2.connect("http://localhost", { createConnection: () => net.connect(rig.path) });
    session.on("error", () => {});
    const stream = session.request({ ":method": "POST", ":path": DECLARE_IDLE, ...JSON_TYPE });
    stream.on("error", () => {});
    stream.write("{");
    await new Promise((resolve) => stream.once("close", resolve));
    assert.equal(stream.rstCode, http2.constants.NGHTTP2_CANCEL);
    await new Promise((resolve) => session.once("close", resolve));
    await until(() => declares(rig), "a request is fast enough");
  });

  test("lets a declaration in among connections that send nothing", async () => {
    await using rig = await start();
    const sockets = Array.from({ length: 200 }, () => net.connect(rig.path));
    for (const socket of sockets) socket.on("error", () => {});
    await Promise.all(sockets.map((socket) => once(socket, "connect")));
    assert.equal((await post(rig.path, DECLARE_IDLE, "{}")).status, 200);
    for (const socket of sockets) socket.destroy();
  });

  test("takes 50 declarations at once", async () => {
    await using rig = await start();
    const answers = await Promise.all(Array.from({ length: 50 }, () => post(rig.path, DECLARE_IDLE, "{}")));
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    assert.equal(rig.calls(), 50);
  });
});

/** A field of an answer's header or trailers, as soon as it has come. */
async function fieldOf(peer: RawHttp2, stream: number, name: string): Promise<string | undefined> {
  const { fields } = await peer.next((each) => each.stream === stream && each.fields?.has(name) === true, name);
  return fields?.get(name);
}

function post(socketPath: string, path: string, body: string): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const request = http.request({ socketPath, path, method: "POST", headers: JSON_TYPE, agent: false }, (response) => {
      const told = text(response).then((answer) => ({ status: response.statusCode ?? 0, body: answer }));
      resolve(told);
    });
    request.on("error", reject);
    request.end(body);
  });
}

function declares({ path }: Rig): Promise<boolean> {
  return post(path, DECLARE_IDLE, "{}").then(
    ({ status }) => status === 200,
    () => false,
  );
}
