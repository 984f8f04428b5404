import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { callFields, CODE, FLAG, FRAME, frame, headerBlock, RawHttp2 } from "../../fixtures/raw-http2.ts";
import { type SocketAgent, startSocketAgent } from "../../fixtures/socket-agent.ts";

/* Peers without an admitted call have nothing to finish: they do not delay the agent's end, whatever they send. */

const WRONG_TOKEN = "wrong-token-0123456789";
const PEERS = 8;
const FLOOD_BATCH = 100;

/** Sends HEADERS for a request that the agent has reset, for as long as the agent takes them. */
async function flood(agent: SocketAgent): Promise<void> {
  const block = headerBlock(callFields("Health", WRONG_TOKEN));
  // A freed place is taken again, until nobody listens any more.
  for (;;) {
    using peer = await RawHttp2.dial(agent).catch(() => undefined);
    if (peer === undefined) return;
    const stream = peer.open(callFields("Health", WRONG_TOKEN).filter(([name]) => name !== ":path"));
    const piece = frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, block);
    while (!peer.isEnded) {
      peer.send(...Array.from({ length: FLOOD_BATCH }, () => piece));
      await peer.flushed();
    }
  }
}

describe("an agent that is told to leave", () => {
  test("refuses a peer at once none of whose calls was let in, and lets others finish", async () => {
    await using agent = await startSocketAgent();
    using known = await RawHttp2.dial(agent);
    assert.equal(await known.ask("Health", agent.token), "0");
    using stranger = await RawHttp2.dial(agent);
    assert.equal(await stranger.ask("Health", WRONG_TOKEN), "16");
    agent.kill("SIGTERM");
    const [farewell, announcement] = await Promise.all(
      [stranger, known].map((peer) => peer.next(({ type }) => type === FRAME.goaway, "a GOAWAY")),
    );
    // The last stream that is accepted (RFC 9113, 6.8): the stranger's first, and any of the other's.
    assert.equal(farewell?.payload.readUInt32BE(0), 1);
    assert.equal(announcement?.payload.readUInt32BE(0), 2 ** 31 - 1);
    assert.equal(farewell.payload.readUInt32BE(4), CODE.none);
    await stranger.ended();
    assert.deepEqual(await agent.exited, { code: 0, signal: null });
  });

  test("leaves while peers with a wrong token flood it with HEADERS", async () => {
    await using agent = await startSocketAgent();
    const floods = Array.from({ length: PEERS }, () => flood(agent));
    await agent.logged("connection_failed", ({ reason }) => String(reason).includes("ENHANCE_YOUR_CALM"));
    agent.kill("SIGTERM");
    assert.deepEqual(await agent.exited, { code: 0, signal: null });
    await Promise.all(floods);
  });
});
