import { once } from "node:events";
import http2 from "node:http2";
import { connect as connectSocket, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { type Client, Metadata, status } from "@grpc/grpc-js";
import { SERVER_NAME } from "../../test/fixtures/certificates.ts";
import { connect } from "../../test/fixtures/exec-stream.ts";
import { EXEC_ENTRIES_LIMIT, UNREAD_LIMIT_BYTES } from "../../src/agent/domain/index.ts";
import { WriteFileRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { DUTIES, execStart, readRequest } from "../../test/fixtures/raw-calls.ts";
import {
  callFields,
  envelope,
  FRAME,
  frame,
  headerBlock,
  RawHttp2,
  type RawOptions,
} from "../../test/fixtures/raw-http2.ts";
import type { Attack, Outcome, Target } from "./attack.ts";

const MIB = 2 ** 20;
/** Calls of each of two connections that do not end, and how often they come again. */
const HELD_CALLS = 60;
const HELD_ROUNDS = 3;
/** Connections of one attack at a time: as many as a listener accepts. */
const AT_ONCE = 64;
/** Longer than the agent's limit for a handshake. */
const HANDSHAKE_LIMIT_MS = 30_000;
const FLOOD_LIMIT_MS = 20_000;
const STAY_MS = 2_000;
const ANSWER_LIMIT_MS = 60_000;
/** A large file, which clients request and do not read. */
const LARGE_FILE = "/proc/kallsyms";
/** The beginning of a TLS record with a ClientHello of 512 bytes. */
const CLIENT_HELLO_BEGIN = Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
const GOAWAY = frame(FRAME.goaway, 0, 0, Buffer.alloc(8));
/** The window of a client that never changes it (RFC 9113, 6.9.2). */
const DEFAULT_WINDOW_BYTES = 65_535;

/** A connection that never sends anything. */
async function halfOpen(port: number): Promise<Socket> {
  const socket = connectSocket(port, "127.0.0.1");
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

async function gone(socket: Socket): Promise<void> {
  if (socket.closed) return;
  const limit = AbortSignal.timeout(HANDSHAKE_LIMIT_MS);
  await once(socket.resume(), "close", { signal: limit }).catch(() => {
    throw new Error("the agent did not end a connection whose handshake never ends");
  });
}

/** Connections that send nothing, or the beginning of a ClientHello: the agent ends them. */
async function stallHandshake({ agent, inputs }: Target, begin: Uint8Array): Promise<number> {
  const count = Math.min(inputs, 2_000);
  for (let opened = 0; opened < count; opened += AT_ONCE) {
    const sockets: Socket[] = [];
    for (let index = 0; index < AT_ONCE; index++) {
      const socket = await halfOpen(agent.port);
      if (begin.length > 0) socket.write(begin);
      sockets.push(socket);
    }
    // Only the last round waits: before, new connections replace idle ones.
    if (opened + AT_ONCE >= count) await Promise.all(sockets.map(gone));
    for (const socket of sockets) socket.resume();
  }
  return count;
}

/** A call, then GOAWAY, then the end of the sending side, and no reads: on node:http2 this held slots for ever. */
async function leaveUnread({ agent, inputs }: Target): Promise<number> {
  const count = Math.min(inputs, 192);
  const message = readRequest(LARGE_FILE);
  for (let opened = 0; opened < count; opened += AT_ONCE) {
    using peers = new DisposableStack();
    for (let index = opened; index < Math.min(opened + AT_ONCE, count); index++) {
      const peer = peers.use(await connectPatiently(agent, { windowBytes: DEFAULT_WINDOW_BYTES }));
      peer.stopReading();
      peer.call("ReadFile", agent.token, message);
      peer.send(GOAWAY);
      peer.finish();
    }
    await serves(agent);
  }
  return count;
}

/** The agent accepts a node agent, even while others hold connections. */
async function serves(agent: Target["agent"]): Promise<void> {
  using peer = await connectPatiently(agent);
  const stream = peer.call("Health", agent.token, new Uint8Array());
  if (!(await peer.holds(() => peer.hasClosed(stream), ANSWER_LIMIT_MS)))
    throw new Error("no place was left for a node agent");
}

/** A slot becomes free a moment after its connection has ended. */
async function connectPatiently(agent: Target["agent"], options?: RawOptions): Promise<RawHttp2> {
  const deadline = performance.now() + HANDSHAKE_LIMIT_MS;
  for (;;) {
    try {
      return await RawHttp2.dial(agent, options);
    } catch (error) {
      if (performance.now() > deadline)
        throw new Error("no place became free for another connection", { cause: error });
      await delay(100);
    }
  }
}

/** 64 restores in a row, each of which ends all connections but its own. */
async function restoreOften({ agent, inputs }: Target): Promise<number> {
  const count = Math.min(inputs, 64);
  for (let index = 0; index < count; index++) {
    const peer = await connectPatiently(agent);
    const stream = peer.call("RunRestoreDuties", agent.token, DUTIES);
    if (!(await peer.holds(() => peer.hasClosed(stream), ANSWER_LIMIT_MS)))
      throw new Error(`restore ${index} got no answer`);
    // Half of them stay, and do not read the GOAWAY.
    if (index % 2 === 1) peer.stopReading();
    setTimeout(() => peer[Symbol.dispose](), index % 2 === 1 ? STAY_MS : 0);
  }
  await delay(STAY_MS + 500);
  return count;
}

/** Streams that are opened and reset at once (CVE-2023-44487). */
async function resetRapidly({ agent, inputs }: Target): Promise<number> {
  let sent = 0;
  const reason = Buffer.from([0, 0, 0, 8]);
  while (sent < inputs) {
    using peer = await connectPatiently(agent);
    for (let index = 0; index < 200 && !peer.isEnded; index++, sent += 1)
      peer.send(frame(FRAME.reset, 0, peer.call("Health", agent.token), reason));
    await peer.holds(() => peer.isEnded, 20);
  }
  return sent;
}

/** An endless stream of frames that the agent must answer or collect. */
async function flood({ agent, inputs }: Target, burst: (peer: RawHttp2) => Buffer): Promise<number> {
  let sent = 0;
  const began = performance.now();
  while (sent < inputs && performance.now() - began < FLOOD_LIMIT_MS) {
    using peer = await connectPatiently(agent);
    peer.stopReading();
    const one = burst(peer);
    const many = Buffer.concat(Array.from({ length: 200 }, () => one));
    for (let index = 0; index < 20 && !peer.isEnded; index++, sent += 200) {
      peer.send(many);
      if (!peer.hasRoom) await Promise.race([peer.flushed(), delay(100)]);
    }
  }
  return sent;
}

/** Calls whose answers the peer's window blocks: files, and commands that write endlessly. */
async function readNothing({ agent, inputs }: Target): Promise<number> {
  const [file, yes] = [readRequest(LARGE_FILE), execStart({ args: ["yes"] })];
  using peers = new DisposableStack();
  let sent = 0;
  for (let index = 0; index < 32 && sent < inputs; index++) {
    const peer = peers.use(await RawHttp2.dial(agent, { windowBytes: 0 }));
    for (let count = 0; count < 200; count++, sent += 1) peer.call("ReadFile", agent.token, file);
    for (let count = 0; count < 4; count++, sent += 1) peer.call("Exec", agent.token, yes, false);
    await peer.holds(() => peer.answered.size > 0, ANSWER_LIMIT_MS);
  }
  await serves(agent);
  return sent;
}

/**
 * Requests that stop in the middle of a message: with the header of a file and without, each as much as a window holds.
 */
async function sendHalf({ agent, inputs, scratch }: Target): Promise<number> {
  const value = { path: `${scratch}/half` };
  const header = toBinary(
    WriteFileRequestSchema,
    create(WriteFileRequestSchema, { message: { case: "header", value } }),
  );
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(4 * MIB, 1);
  using peers = new DisposableStack();
  let sent = 0;
  for (let index = 0; index < 30 && sent < inputs; index++) {
    const peer = peers.use(await RawHttp2.dial(agent));
    for (let count = 0; count < 200 && !peer.isEnded; count++, sent += 1) {
      const stream = peer.call("WriteFile", agent.token);
      if (count % 2 === 0) peer.data(stream, envelope(header), false);
      // A little less than the smallest window, so that the connection lives.
      peer.data(stream, Buffer.concat([prefix, Buffer.alloc(2_000)]), false);
    }
    await peer.holds(() => peer.answered.size > 0, 200);
  }
  await serves(agent);
  return sent;
}

/**
 * Whole messages of calls whose requests do not end, 480 MiB at once over a client that keeps to the windows: each counts until
 * its request ends (gRPC over HTTP/2: a unary request is one message and END_STREAM). They end when the agent has them or has
 * refused them, and then come again: what refused messages took is not to be held beside the next.
 */
async function sendWithoutEnd({ agent }: Target): Promise<Outcome> {
  const field = Buffer.alloc(4 * MIB);
  // One that the schema does not have: its tag, and the length of the rest.
  field.set([0x7a, 0xfb, 0xff, 0xff, 0x01]);
  const message = envelope(field);
  const { ca, client } = agent.certificates;
  // In MB: with less this client resets calls whose answers come while it holds much.
  const options = { ca, ...client, servername: SERVER_NAME, maxSessionMemory: 1_000 };
  const head = Object.fromEntries(callFields("Health", agent.token));
  const begin = (session: http2.ClientHttp2Session): { sent: Promise<void>; end: () => Promise<boolean> } => {
    const stream = session.request(head).resume();
    let isAnswered = false;
    stream.on("trailers", (trailers) => (isAnswered = trailers["grpc-status"] === "0"));
    const over = new Promise<void>((resolve) => stream.on("error", () => {}).once("close", resolve));
    const sent = new Promise<void>((resolve) => stream.write(message, () => resolve()));
    const end = async (): Promise<boolean> => {
      stream.end();
      await over;
      return isAnswered;
    };
    return { sent: Promise.race([sent, over]), end };
  };
  let most = 0;
  for (let round = 0; round < HELD_ROUNDS; round++) {
    const sessions = [1, 2].map(() => http2.connect(`https://127.0.0.1:${agent.port}`, options));
    try {
      const calls = sessions.flatMap((session) => Array.from({ length: HELD_CALLS }, () => begin(session)));
      await Promise.all(calls.map(({ sent }) => sent));
      const answered = await Promise.all(calls.map(({ end }) => end()));
      most = Math.max(most, answered.filter(Boolean).length);
    } finally {
      for (const session of sessions) session.destroy();
    }
  }
  await serves(agent);
  if (most * 4 * MIB > UNREAD_LIMIT_BYTES) throw new Error(`${most} messages of 4 MiB were held at once`);
  return { inputs: HELD_ROUNDS * 2 * HELD_CALLS, measured: `${most} held at once, the others refused` };
}

/**
 * A call of one message over an ordinary client, which respects the windows. Resolves with the number of its status.
 */
function callWith(client: Client, method: string, message: Uint8Array, token: string): Promise<status> {
  const metadata = new Metadata();
  metadata.set("svc-instance-token", token);
  const path = `/svc.guest.v1alpha1.GuestAgent/${method}`;
  const asIs = (bytes: Uint8Array): Buffer => Buffer.from(bytes);
  const call = client.makeBidiStreamRequest(path, asIs, asIs, metadata, { deadline: Date.now() + ANSWER_LIMIT_MS });
  call.on("error", () => {});
  call.resume();
  call.write(message);
  call.end();
  return new Promise((resolve) => {
    call.on("status", ({ code }) => resolve(code));
  });
}

/** Very many arguments, variables and fields: each message would take the decoder seconds. */
async function sendCountless({ agent, inputs }: Target): Promise<number> {
  const pairs = [
    [0x0a, 0],
    [0x12, 0],
    [0x1a, 0],
    [0x08, 0],
  ] as const;
  const methods = ["Exec", "ReadFile", "WriteFile", "StatPath", "RunHook", "Health"] as const;
  const count = Math.min(inputs, 96);
  const client = connect(agent);
  for (let index = 0; index < count; index++) {
    const method = methods[index % methods.length] ?? "Health";
    const fields = Buffer.alloc(4 * MIB - 16, Uint8Array.from(pairs[(index >>> 1) % pairs.length] ?? pairs[0]));
    // { start: … } of 4 MiB - 16 bytes
    const message = method === "Exec" ? Buffer.concat([Buffer.of(0x0a, 0xf0, 0xff, 0xff, 0x01), fields]) : fields;
    const code = await callWith(client, method, message, agent.token);
    if (code !== status.INVALID_ARGUMENT && code !== status.RESOURCE_EXHAUSTED)
      throw new Error(`${method} with countless fields ended with status ${code}`);
  }
  client.close();
  return count;
}

/** The largest allowed number of arguments, many times at once: other calls must not starve. */
async function sendLargest({ agent, inputs }: Target): Promise<number> {
  const count = Math.max(8, Math.min(inputs, 256));
  const args = ["true", ...Array<string>(EXEC_ENTRIES_LIMIT - 1).fill("")];
  const message = execStart({ args });
  const client = connect(agent);
  for (let sent = 0; sent < count; sent += 8) {
    const calls = Array.from({ length: 8 }, () => callWith(client, "Exec", message, agent.token));
    const code = (await Promise.all(calls)).find((ended) => ended !== status.OK);
    if (code !== undefined) throw new Error(`the largest legal Exec ended with status ${code}`);
  }
  client.close();
  return count;
}

const settings = frame(FRAME.settings, 0, 0);
const ping = frame(FRAME.ping, 0, 0, Buffer.alloc(8));
const continuation = (): Buffer => frame(FRAME.continuation, 0, 1, headerBlock([["x-more", "y".repeat(100)]]));

export const connectionAttacks: readonly Attack[] = [
  { name: "half-open connections", weight: 2, run: (target) => stallHandshake(target, Buffer.alloc(0)) },
  { name: "ClientHellos that stop", weight: 2, run: (target) => stallHandshake(target, CLIENT_HELLO_BEGIN) },
  { name: "call, GOAWAY, close, nothing read", weight: 1, run: leaveUnread },
  { name: "restores in a row, unread", weight: 1, run: restoreOften },
  { name: "rapid resets", weight: 10, run: resetRapidly },
  { name: "SETTINGS flood", weight: 20, run: (target) => flood(target, () => settings) },
  { name: "PING flood", weight: 20, run: (target) => flood(target, () => ping) },
  {
    name: "CONTINUATION flood",
    weight: 10,
    run: (target) =>
      flood(target, (peer) => {
        peer.send(frame(FRAME.headers, 0, 1, headerBlock(callFields("Health", target.agent.token))));
        return continuation();
      }),
  },
  { name: "windows of 0, nothing read", weight: 4, run: readNothing },
  { name: "messages that are never whole", weight: 4, run: sendHalf },
  { name: "countless fields in 4 MiB", weight: 1, run: sendCountless },
  { name: "whole messages of calls that do not end", weight: 1, run: sendWithoutEnd },
  { name: "131,072 arguments, legal", weight: 1, run: sendLargest },
];
