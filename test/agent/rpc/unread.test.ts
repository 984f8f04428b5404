import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { describe, it, test } from "node:test";
import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { bytesFieldFrame, type Call } from "../../../src/agent/rpc/index.ts";
import { ExecFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { WriteFileRequestSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { TunnelFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { memoryOf } from "../../fixtures/proc.ts";
import { listener } from "../../fixtures/listeners.ts";
import { startManagement, TEST_TOKEN, type TestServer } from "../../fixtures/management.ts";
import { execStart } from "../../fixtures/raw-calls.ts";
import { callFields, callHeaders, CODE, envelope, FRAME, frame, RawHttp2, uint32 } from "../../fixtures/raw-http2.ts";

const MESSAGE_BYTES = 4 * 2 ** 20;
/** That many of them are 64 MiB, less a byte each. */
const HELD = 16;
/** Stalled calls of one connection. */
const CALLS = 60;
/** 64 MiB may be held, and V8 may not have collected what refused calls left. 480 MiB and more are sent. */
const MOST_MIB = 192;
const HEALTH = "GuestAgent/Health";
/** An unknown field of `bytes`, which a client may send: its tag and the length of the rest. */
const FIELD = Buffer.of(0x7a, 0xfb, 0xff, 0xff, 0x01);

const directory = forAllTests(await testDirectory());

function bytesOf<Desc extends DescMessage>(schema: Desc, init: MessageInitShape<Desc>): Uint8Array {
  return toBinary(schema, create(schema, init));
}

/** A message of the largest size, with its prefix. */
function largest(): Buffer {
  const message = Buffer.alloc(5 + MESSAGE_BYTES);
  message.writeUInt32BE(MESSAGE_BYTES, 1);
  FIELD.copy(message, 5);
  return message;
}

for (const [what, lackBytes] of [
  ["incomplete messages", 1],
  ["unfinished requests", 0],
] as const)
  it(`the agent holds 64 MiB of ${what} and refuses more`, async () => {
    await using server = await startManagement((router) => {
      router.unary(GuestAgent.method.health, () => create(HealthResponseSchema));
    });
    const { ca, client } = server.certificates;
    const session = http2.connect(`https://127.0.0.1:${server.port}`, { ca, ...client, servername: SERVER_NAME });
    const message = largest();
    const calls = Array.from({ length: HELD + 1 }, () => {
      const stream = session.request(callHeaders("Health", TEST_TOKEN));
      // A refused call is reset after its status.
      stream.on("error", () => {});
      stream.resume();
      const status = new Promise<string>((resolve) => {
        const tell = (headers: http2.IncomingHttpHeaders): void => {
          if (headers["grpc-status"] !== undefined)
            resolve(`${String(headers["grpc-status"])} ${String(headers["grpc-message"] ?? "")}`);
        };
        stream.on("response", tell);
        stream.on("trailers", tell);
      });
      stream.write(message.subarray(0, message.length - lackBytes));
      return { stream, status };
    });
    const refused = await Promise.race(calls.map(async ({ status }) => status));
    assert.match(refused, /^8 the limit of 67108864 bytes of unread requests is reached/);
    for (const { stream } of calls) if (!stream.destroyed) stream.end(message.subarray(message.length - lackBytes));
    const statuses = await Promise.all(calls.map(({ status }) => status));
    assert.equal(statuses.filter((status) => status === "0 ").length, HELD, statuses.join("\n"));
    session.close();
    await once(session, "close");
  });

/** Makes stalled calls on two connections with these messages. Returns how many MiB more the agent holds at most. */
async function mostHeldMib(
  agent: RunningAgent,
  rounds: number,
  path: string,
  messages: readonly Buffer[],
): Promise<number> {
  const { ca, client } = agent.certificates;
  // In MB: with less, this client resets calls whose answers come while it holds much.
  const options = { ca, ...client, servername: SERVER_NAME, maxSessionMemory: 1_000 };
  const begin = (session: http2.ClientHttp2Session, method: string, sends: readonly Buffer[]) => {
    const stream = session.request(callHeaders(`svc.guest.v1alpha1.${method}`, agent.token));
    stream.on("error", () => {}).resume();
    const over = new Promise<void>((resolve) => stream.once("close", resolve));
    const sent = Promise.all(sends.map((message) => new Promise<unknown>((resolve) => stream.write(message, resolve))));
    const end = async (): Promise<void> => {
      stream.end();
      await over;
    };
    const cancel = async (): Promise<void> => {
      stream.close(http2.constants.NGHTTP2_CANCEL);
      await over;
    };
    /** `sent`: everything is sent, or the call has ended. */
    return { sent: Promise.race([sent, over]), end, cancel };
  };
  const restMib = memoryOf(agent.pid).ownBytes / 2 ** 20;
  let mostMib = restMib;
  const look = (): void => void (mostMib = Math.max(mostMib, memoryOf(agent.pid).ownBytes / 2 ** 20));
  const timer = setInterval(look, 5);
  try {
    for (let round = 0; round < rounds; round++) {
      const sessions: http2.ClientHttp2Session[] = [];
      const calls: ReturnType<typeof begin>[] = [];
      while (calls.length < 2 * CALLS) {
        // Only now: without a request for five seconds the agent would end the connection.
        if (calls.length % CALLS === 0) sessions.push(http2.connect(`https://127.0.0.1:${agent.port}`, options));
        const call = begin(sessions.at(-1) as http2.ClientHttp2Session, path, messages);
        calls.push(call);
        // Each once the one before is accepted: at once, the others would be refused for the many incomplete ones.
        if (path !== HEALTH) await call.sent;
      }
      await Promise.all(calls.map(({ sent }) => sent));
      // The agent has read everything before these once they are answered.
      await Promise.all(sessions.map((session) => begin(session, HEALTH, [Buffer.alloc(5)]).end()));
      look();
      // Everything that the agent takes has arrived. The first round's calls are answered, and their memory is used
      // again.
      await Promise.all(calls.map(({ end, cancel }) => (path === HEALTH ? end() : cancel())));
      for (const session of sessions) session.destroy();
    }
  } finally {
    clearInterval(timer);
  }
  return mostMib - restMib;
}

it("three rounds of unfinished large requests stay within the memory bound", async () => {
  await using agent = await startAgent();
  const mib = await mostHeldMib(agent, 3, HEALTH, [largest()]);
  // 480 MiB are sent at a time, and 64 may be held: without a bound on incomplete messages it was 360.
  assert.ok(mib < MOST_MIB, `${Math.round(mib)} MiB above rest`);
});

describe("stalled calls with large messages", () => {
  const data = { case: "data", value: Buffer.alloc(MESSAGE_BYTES - 16) } as const;
  const path = directory.at("file");
  const header = bytesOf(WriteFileRequestSchema, { message: { case: "header", value: { path } } });
  const holds = async (method: string, ...messages: readonly Uint8Array[]): Promise<void> => {
    await using agent = await startAgent();
    const mib = await mostHeldMib(agent, 1, method, messages.map(envelope));
    assert.ok(mib < MOST_MIB, `${Math.round(mib)} MiB above rest`);
  };

  it("stalled WriteFile calls stay within the memory bound", () =>
    holds("GuestAgent/WriteFile", header, bytesOf(WriteFileRequestSchema, { message: data })));

  it("large WriteFile messages with a single data byte stay within the memory bound", async () => {
    const byte = bytesOf(WriteFileRequestSchema, { message: { case: "data", value: Buffer.from("x") } });
    const rest = Buffer.alloc(MESSAGE_BYTES - FIELD.length - byte.length);
    const length = [0, 7, 14].map((shift) => 0x80 | ((rest.length >> shift) & 0x7f));
    const message = Buffer.concat([byte, FIELD.subarray(0, 1), Buffer.of(...length, rest.length >> 21), rest]);
    await holds("GuestAgent/WriteFile", header, message, message, message);
  });

  it("Exec calls whose command does not read its input stay within the memory bound", async () => {
    const start = execStart({ args: ["sleep", "infinity"], stdin: true });
    await holds("GuestAgent/Exec", start, bytesOf(ExecFrameSchema, { frame: { ...data, case: "stdin" } }));
  });

  it("tunnels whose server does not read stay within the memory bound", async () => {
    await using server = await listener((socket) => socket.pause());
    const open = { case: "open", value: { target: { case: "port", value: server.port } } } as const;
    await holds("Tunnel/Open", ...[open, data].map((of) => bytesOf(TunnelFrameSchema, { frame: of })));
  });
});

const STDOUT = 7;
const FLOOD_BYTES = 64 * 1024;
/** What the server sends before the client opens its window: all of one message but its last bytes. */
const WINDOW_BYTES = 65_535;

/** A server that sends its clients more than they take, until it dismisses the calls. */
async function flooding(calls: Call[]): Promise<TestServer> {
  return startManagement((router) =>
    router.bidiStream(GuestAgent.method.exec, async (call) => {
      for (let count = 0; count < 8; count++) call.send(bytesFieldFrame(STDOUT, Buffer.alloc(FLOOD_BYTES)));
      calls.push(call);
      await new Promise<void>((resolve) => call.signal.addEventListener("abort", () => resolve()));
    }),
  );
}

function dismiss(call: Call): void {
  call.failOnRead(new AgentError("ABORTED", "EXEC_TAKEN_OVER", "another call has attached"));
}

/** Widens the window of a stream, or with 0 that of the connection. */
function widen(client: RawHttp2, stream: number, bytes: number): void {
  client.send(frame(FRAME.windowUpdate, 0, stream, uint32(bytes)));
}

describe("a failed call whose client does not read", () => {
  test("a failed call that sent no data sends its status at once", async () => {
    const calls: Call[] = [];
    await using server = await flooding(calls);
    using client = await RawHttp2.dial(server, { windowBytes: WINDOW_BYTES });
    client.open(callFields("Exec", TEST_TOKEN));
    await client.next(({ type }) => type === FRAME.data);
    const second = client.open(callFields("Exec", TEST_TOKEN));
    await client.next(({ type, stream }) => type === FRAME.headers && stream === second);
    dismiss(calls[1] as Call);
    assert.equal((await client.status(second)).get("grpc-status"), "10");
  });

  test("beyond 4 MiB of unread data, the oldest failed calls are reset", async () => {
    const calls: Call[] = [];
    await using server = await flooding(calls);
    using client = await RawHttp2.dial(server, { windowBytes: WINDOW_BYTES });
    widen(client, 0, 16 * 1024 * 1024);
    const streams = Array.from({ length: 80 }, () => client.open(callFields("Exec", TEST_TOKEN)));
    const begun = (): number =>
      new Set(client.frames.filter(({ type }) => type === FRAME.data).map(({ stream }) => stream)).size;
    assert.ok(await client.holds(() => begun() === streams.length));
    for (const call of calls) dismiss(call);
    for (const stream of streams.slice(0, 16)) assert.equal(await client.resetCode(stream), CODE.cancel);
    for (const stream of streams.slice(16)) {
      assert.equal(client.hasClosed(stream), false);
      widen(client, stream, FLOOD_BYTES);
      assert.equal((await client.status(stream)).get("grpc-status"), "10");
    }
  });
});
