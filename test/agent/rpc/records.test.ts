import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { connect } from "node:net";
import { describe, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { bytesFieldFrame, type Router } from "../../../src/agent/rpc/index.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { listener } from "../../fixtures/listeners.ts";
import { startManagement, TEST_TOKEN } from "../../fixtures/management.ts";
import { callHeaders } from "../../fixtures/raw-http2.ts";

const STDOUT = 7;
const EMPTY_MESSAGE = Buffer.alloc(5);
const APPLICATION_DATA = 23;
const RECORD_HEADER_BYTES = 5;
const { health, exec } = GuestAgent.method;

interface Answer {
  readonly status: string;
  readonly sizeBytes: number;
  /** TLS records that carried it. */
  readonly records: number;
}

describe("an answer on the wire", () => {
  test("is one TLS record from its headers to its trailers when it is short", async () => {
    await using rig = await start((router) => {
      router.unary(health, () => create(HealthResponseSchema, { alive: true }));
    });
    for (let call = 0; call < 3; call++) {
      const { status, records } = await rig.ask("Health");
      assert.deepEqual({ status, records }, { status: "0", records: 1 });
    }
  });

  test("is one TLS record when the status is an error that follows a message", async () => {
    await using rig = await start((router) => {
      router.bidiStream(exec, async (call) => {
        const request = call.messages();
        for (let message = await request.next(); message !== undefined; message = await request.next())
          assert.equal(message.bytes.length, 0);
        call.send(bytesFieldFrame(STDOUT, Buffer.from("last words")));
        throw new AgentError("NOT_FOUND", "FILE_ERROR", "there is nothing");
      });
    });
    const { status, records } = await rig.ask("Exec");
    assert.deepEqual({ status, records }, { status: "5", records: 1 });
  });
});

interface Rig extends AsyncDisposable {
  /** Calls a method with an empty message. */
  ask(method: string): Promise<Answer>;
}

async function start(register: (router: Router) => void): Promise<Rig> {
  const server = await startManagement(register);
  const relay = await recordRelay(server.port);
  const { ca, client } = server.certificates;
  const session = http2.connect(`https://127.0.0.1:${relay.port}`, { ca, ...client, servername: SERVER_NAME });
  await once(session, "remoteSettings");
  return {
    async ask(method) {
      await answered(session);
      const before = relay.records();
      const stream = session.request(callHeaders(method, TEST_TOKEN));
      let status = "";
      let sizeBytes = 0;
      stream.on("trailers", (trailers) => (status = String(trailers["grpc-status"])));
      stream.on("data", (chunk: Buffer) => (sizeBytes += chunk.length));
      stream.end(EMPTY_MESSAGE);
      await once(stream, "close");
      return { status, sizeBytes, records: relay.records() - before };
    },
    async [Symbol.asyncDispose]() {
      session.destroy();
      await relay[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** Resolves when the server has answered a PING: everything that it sent before has arrived. */
async function answered(session: http2.ClientHttp2Session): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  session.ping(() => resolve());
  await promise;
}

/** Stands between a client and a server, and counts the records of application data that come from the server. */
async function recordRelay(port: number) {
  let records = 0;
  let unread: Buffer = Buffer.alloc(0);
  const count = (bytes: Buffer): void => {
    unread = Buffer.concat([unread, bytes]);
    while (unread.length >= RECORD_HEADER_BYTES) {
      const end = RECORD_HEADER_BYTES + unread.readUInt16BE(3);
      if (unread.length < end) break;
      if (unread[0] === APPLICATION_DATA) records++;
      unread = unread.subarray(end);
    }
  };
  const relay = await listener((client) => {
    const server = connect(port, "127.0.0.1")
      .on("error", () => {})
      .on("data", count);
    client.pipe(server).pipe(client);
    client.once("close", () => server.destroy());
  });
  return { port: relay.port, records: () => records, [Symbol.asyncDispose]: () => relay[Symbol.asyncDispose]() };
}
