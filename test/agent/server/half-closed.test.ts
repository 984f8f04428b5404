import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join, dirname } from "node:path";
import { connect } from "node:net";
import { buffer } from "node:stream/consumers";
import { describe, it } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { noProcessWith, processesWith } from "../../fixtures/proc.ts";
import { execStart, readRequest } from "../../fixtures/raw-calls.ts";
import { until } from "../../fixtures/awake.ts";
import {
  callFields,
  envelope,
  FLAG,
  FRAME,
  frame,
  frameReader,
  headerBlock,
  INITIAL_WINDOW_SIZE,
  PREFACE,
  RawHttp2,
  setting,
  uint32,
} from "../../fixtures/raw-http2.ts";
import { startSocketAgent } from "../../fixtures/agent.ts";

const RUN = String(process.pid).padStart(7, "0");
const WINDOW_BYTES = 2 ** 31 - 1;
const FILE_BYTES = 8 * 2 ** 20;

const agent = forAllTests(await startSocketAgent());

/** All bytes of a connection: one complete request for each message. */
function conversation(requests: readonly (readonly [method: string, message: Uint8Array])[]): Buffer {
  return Buffer.concat([
    PREFACE,
    frame(FRAME.settings, 0, 0, setting(INITIAL_WINDOW_SIZE, WINDOW_BYTES)),
    frame(FRAME.windowUpdate, 0, 0, uint32(WINDOW_BYTES - 65_535)),
    ...requests.flatMap(([method, message], index) => [
      frame(FRAME.headers, FLAG.endHeaders, 2 * index + 1, headerBlock(callFields(method, agent.token))),
      frame(FRAME.data, FLAG.endStream, 2 * index + 1, envelope(message)),
    ]),
  ]);
}

/** Bytes of DATA, and whether the answer is complete, of each stream. */
function answers(bytes: Buffer): Map<number, { bodyBytes: number; isComplete: boolean }> {
  const found = new Map<number, { bodyBytes: number; isComplete: boolean }>();
  const take = frameReader((whole, type, flags) => {
    const stream = whole.readUInt32BE(5);
    const answer = found.get(stream) ?? { bodyBytes: 0, isComplete: false };
    if (type === FRAME.data) answer.bodyBytes += whole.length - 9;
    if (type === FRAME.headers && (flags & FLAG.endStream) !== 0) answer.isComplete = true;
    found.set(stream, answer);
  });
  take(bytes);
  return found;
}

describe("a half-closed client without TLS", () => {
  it("`bridge` delivers every answer completely after its standard input has ended", async () => {
    const path = join(dirname(agent.socketPath), "large");
    await writeFile(path, Buffer.alloc(FILE_BYTES));
    const [program = "", ...args] = agent.bridge;
    const bridge = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
    const ended = new Promise((resolve) => bridge.once("exit", resolve));
    bridge.stdin.end(
      conversation([
        ["Exec", execStart({ args: ["sh", "-c", "sleep 2; echo rest"] })],
        ["ReadFile", readRequest(path)],
        ["Health", Buffer.alloc(0)],
      ]),
    );
    const found = answers(await buffer(bridge.stdout));
    assert.equal(await ended, 0);
    for (const stream of [1, 3, 5]) assert.equal(found.get(stream)?.isComplete, true, `stream ${stream}`);
    assert.ok((found.get(3)?.bodyBytes ?? 0) > FILE_BYTES);
  });

  it("a half-closed client's command ends when the client disconnects", async () => {
    const mark = `424242.301${RUN}`;
    const socket = connect({ path: agent.socketPath, allowHalfOpen: true });
    socket.end(conversation([["Exec", execStart({ args: ["yes", mark] })]]));
    await once(socket, "data");
    await until(async () => (await processesWith(mark)).length > 0, "the command runs");
    socket.destroy();
    await noProcessWith(mark);
  });

  it("if a half-closed client stops reading, its command and connection are ended", async () => {
    const mark = `424242.302${RUN}`;
    using peer = await RawHttp2.dial({ socketPath: agent.socketPath }, { windowBytes: 65_535 });
    peer.call("Exec", agent.token, execStart({ args: ["sh", "-c", `: ${mark}; cat /dev/zero`] }));
    await peer.next(({ type }) => type === FRAME.data);
    peer.finish();
    await noProcessWith(mark);
    await peer.ended();
  });

  it("a client's half-close ends only requests with an incomplete body", async () => {
    const mark = `424242.303${RUN}`;
    using peer = await RawHttp2.dial({ socketPath: agent.socketPath });
    const open = peer.call("Exec", agent.token, execStart({ args: ["sleep", mark], stdin: true }), false);
    await peer.next(({ type, stream }) => type === FRAME.data && stream === open);
    const complete = peer.call("Exec", agent.token, execStart({ args: ["sh", "-c", "sleep 1; echo rest"] }));
    await peer.next(({ type, stream }) => type === FRAME.data && stream === complete);
    peer.finish();
    await noProcessWith(mark);
    assert.equal((await peer.status(complete)).get("grpc-status"), "0");
    await peer.ended();
  });
});
