import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import { it } from "node:test";
import { create } from "@bufbuild/protobuf";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthResponseSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { SERVER_NAME } from "../../fixtures/certificates.ts";
import { startManagement, TEST_TOKEN } from "../../fixtures/management.ts";

const MESSAGE_BYTES = 4 * 2 ** 20;
/** So many of them are 64 MiB, but for a byte each. */
const HELD = 16;
/** An unknown field of `bytes`, which a client may send: its tag and the length of the rest. */
const FIELD = Buffer.of(0x7a, 0xfb, 0xff, 0xff, 0x01);

/** A message with its prefix, as large as may be. */
function largest(): Buffer {
  const message = Buffer.alloc(5 + MESSAGE_BYTES);
  message.writeUInt32BE(MESSAGE_BYTES, 1);
  FIELD.copy(message, 5);
  return message;
}

for (const [what, lackBytes] of [
  ["messages that are not whole", 1],
  ["messages whose requests are not at their end", 0],
] as const) {
  it(`64 MiB of ${what} are held: one more is refused, the others are answered at their end`, async () => {
    await holdsSixtyFour(lackBytes);
  });
}

/** Anonymous memory of a process in MiB; 0 once it has ended. */
function anonymousMib(pid: number): number {
  const [, kib = "0"] = /^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kib) / 1024;
}

it("takes no more memory than it counts, however often large messages come whose requests do not end", async () => {
  await using agent = await startAgent();
  const { ca, client } = agent.certificates;
  // In MB: with less this client resets calls whose answers come while it holds much.
  const options = { ca, ...client, servername: SERVER_NAME, maxSessionMemory: 1_000 };
  const message = largest();
  const begin = (session: http2.ClientHttp2Session): { sent: Promise<void>; end: () => Promise<void> } => {
    const stream = session.request({
      ":method": "POST",
      ":path": "/svc.guest.v1alpha1.GuestAgent/Health",
      "content-type": "application/grpc",
      te: "trailers",
      "svc-instance-token": agent.token,
    });
    stream.on("error", () => {}).resume();
    const over = new Promise<void>((resolve) => stream.once("close", resolve));
    const sent = new Promise<void>((resolve) => stream.write(message, () => resolve()));
    const end = async (): Promise<void> => {
      stream.end();
      await over;
    };
    return { sent: Promise.race([sent, over]), end };
  };
  const restMib = anonymousMib(agent.pid);
  let mostMib = restMib;
  const timer = setInterval(() => (mostMib = Math.max(mostMib, anonymousMib(agent.pid))), 5);
  try {
    for (let round = 0; round < 3; round++) {
      const sessions = [1, 2].map(() => http2.connect(`https://127.0.0.1:${agent.port}`, options));
      const calls = sessions.flatMap((session) => Array.from({ length: 60 }, () => begin(session)));
      // All that the agent takes is there; the first round's are served, and what they took is used again.
      await Promise.all(calls.map(({ sent }) => sent));
      mostMib = Math.max(mostMib, anonymousMib(agent.pid));
      await Promise.all(calls.map(({ end }) => end()));
      for (const session of sessions) session.destroy();
    }
  } finally {
    clearInterval(timer);
  }
  // 480 MiB are sent at a time, and 64 may be held: without bounds on what is begun it was 360.
  assert.ok(mostMib - restMib < 128, `${Math.round(mostMib - restMib)} MiB above rest`);
});

async function holdsSixtyFour(lackBytes: number): Promise<void> {
  await using server = await startManagement((router) => {
    router.unary(GuestAgent.method.health, () => create(HealthResponseSchema));
  });
  const { ca, client } = server.certificates;
  const session = http2.connect(`https://127.0.0.1:${server.port}`, { ca, ...client, servername: SERVER_NAME });
  const message = largest();
  const calls = Array.from({ length: HELD + 1 }, () => {
    const stream = session.request({
      ":method": "POST",
      ":path": "/svc.guest.v1alpha1.GuestAgent/Health",
      "content-type": "application/grpc",
      te: "trailers",
      "svc-instance-token": TEST_TOKEN,
    });
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
  assert.match(refused, /^8 67108864 bytes of requests are half here/);
  for (const { stream } of calls) if (!stream.destroyed) stream.end(message.subarray(message.length - lackBytes));
  const statuses = await Promise.all(calls.map(({ status }) => status));
  assert.equal(statuses.filter((status) => status === "0 ").length, HELD, statuses.join("\n"));
  session.close();
  await once(session, "close");
}
