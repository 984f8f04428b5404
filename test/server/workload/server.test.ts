import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, stat } from "node:fs/promises";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import * as grpc from "@grpc/grpc-js";
import { execa } from "execa";
import { GuestAgent } from "../../../src/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { DeclareIdleResponseSchema, WorkloadService } from "../../../src/gen/svc/guest/v1alpha1/workload_pb.ts";
import type { WorkloadLimits } from "../../../src/server/workload/limits.ts";
import { WorkloadServer } from "../../../src/server/workload/server.ts";
import { type RecordingLog, recordingLog } from "../../fixtures/recording-log.ts";
import { systemClock } from "../../fixtures/system-clock.ts";

const DECLARE_IDLE = "/svc.guest.v1alpha1.WorkloadService/DeclareIdle";
const JSON_TYPE = { "content-type": "application/json" };
/** The first is that of gRPC's C core. */
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
  const dir = await mkdtemp(join(tmpdir(), "guest-agent-"));
  const path = join(dir, "missing", "workload.sock");
  const log = recordingLog();
  let calls = 0;
  const server = new WorkloadServer({
    declareIdle: () => {
      calls++;
      return { declaredAtNs: DECLARED_AT_NS };
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
      await rm(dir, { recursive: true, force: true });
    },
  };
}

describe("the workload's socket", () => {
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

  test("may be used by everybody, and is gone when the server is closed", async () => {
    await using rig = await start();
    assert.equal((await stat(rig.path)).mode & 0o777, 0o666);
    rig.server.close();
    assert.equal(existsSync(rig.path), false);
  });

  test("answers curl with JSON", async (t) => {
    await using rig = await start();
    const curl = await execa(
      "curl",
      [
        "-sS",
        "-i",
        "--unix-socket",
        rig.path,
        "-H",
        "content-type: application/json",
        "-d",
        "{}",
        `http://localhost${DECLARE_IDLE}`,
      ],
      { reject: false },
    );
    if (curl.code === "ENOENT") {
      t.skip("needs curl");
      return;
    }
    assert.match(curl.stdout, /^HTTP\/1\.1 200 OK\r?\n/);
    assert.match(curl.stdout, /svc-agent-version: 9\.9\.9/i);
    assert.match(curl.stdout, new RegExp(`{"declaredAt":"${DECLARED_AT}"}$`));
    assert.equal(rig.calls(), 1);
  });

  test("answers plain HTTP/1.1 byte by byte, and a request whose headers come in one piece with its body", async () => {
    await using rig = await start();
    assert.deepEqual(await post(rig.path, DECLARE_IDLE, "{}"), {
      status: 200,
      body: `{"declaredAt":"${DECLARED_AT}"}`,
    });
    const text = `POST ${DECLARE_IDLE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`;
    for (const size of [1, text.length]) {
      const socket = net.connect(rig.path);
      for (let at = 0; at < text.length; at += size) {
        socket.write(text.slice(at, at + size));
        await new Promise((resolve) => setImmediate(resolve));
      }
      assert.match(await textOf(socket), /^HTTP\/1\.1 200 OK\r\n[^]*declaredAt/);
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
    for (const method of Object.values(GuestAgent.method)) {
      const path = `/${GuestAgent.typeName}/${method.name}`;
      assert.equal((await post(rig.path, path, "{}")).status, 404);
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
        assert.match(await textOf(socket), /^HTTP\/1\.1 200 OK\r\n[^]*declaredAt/, `HTTP/${version} ${host}`);
      }
    }
  });

  test("cares for no authority over HTTP/2, nor for its absence where there is a Host", async () => {
    await using rig = await start();
    const session = http2.connect("http://localhost", { createConnection: () => net.connect(rig.path) });
    const heads = [...AUTHORITIES.map((authority) => ({ ":authority": authority })), { host: "tmp%2Fw.sock" }];
    for (const head of heads) {
      const stream = session.request({ ":method": "POST", ":path": DECLARE_IDLE, ...head, ...JSON_TYPE });
      const status = await new Promise((resolve) => {
        stream.once("response", (headers) => resolve(headers[":status"]));
        stream.once("close", () => resolve("none"));
        stream.resume().end("{}");
      });
      assert.equal(status, 200, JSON.stringify(head));
    }
    session.close();
  });

  test("survives requests that are hardly HTTP", async () => {
    await using rig = await start();
    const requests = [
      "\r\n\r\n",
      "garbage\r\n\r\n",
      "PRI * HTTP/1.1\r\n\r\n",
      `POST ${DECLARE_IDLE} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`,
      `POST ${DECLARE_IDLE} HTTP/1.1\r\nHost: [\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`,
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

  test("survives HTTP/2 requests without an authority and resets of all kinds", async () => {
    await using rig = await start();
    const session = http2.connect("http://localhost", { createConnection: () => net.connect(rig.path) });
    session.on("error", () => {});
    for (let code = 0; code <= 13; code++) {
      const stream = session.request({ ":method": "POST", ":path": DECLARE_IDLE, ":authority": "", ...JSON_TYPE });
      stream.on("error", () => {});
      stream.write("{");
      stream.close(code);
    }
    const bad = session.request({ ":method": "POST", ":path": DECLARE_IDLE, ":authority": "[", ...JSON_TYPE });
    bad.on("error", () => {});
    bad.end("{}");
    await new Promise((resolve) => bad.resume().once("close", resolve));
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
    assert.match(String(line.fields["reason"]), /^32 calls were given up$/);
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
    for (const text of starts) {
      const socket = net.connect(rig.path);
      socket.on("error", () => {});
      socket.write(text);
      await new Promise((resolve) => socket.resume().once("close", resolve));
    }
    assert.equal((await post(rig.path, DECLARE_IDLE, "{}")).status, 200);
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
    assert.equal((await post(rig.path, DECLARE_IDLE, "{}")).status, 200);
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

function post(socketPath: string, path: string, body: string): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const request = http.request({ socketPath, path, method: "POST", headers: JSON_TYPE, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (text += chunk));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body: text }));
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function textOf(socket: net.Socket): Promise<string> {
  let text = "";
  socket.setEncoding("utf8");
  for await (const chunk of socket) text += String(chunk);
  return text;
}
