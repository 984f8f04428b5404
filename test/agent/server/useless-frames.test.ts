import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { readRequest } from "../../fixtures/raw-calls.ts";
import {
  callFields,
  CODE,
  envelope,
  FLAG,
  FRAME,
  frame,
  headerBlock,
  RawHttp2,
  uint32,
} from "../../fixtures/raw-http2.ts";
import { startSocketAgent } from "../../fixtures/socket-agent.ts";

/*
 * Legal frames of no use: each costs the agent something, and before the first admitted call their sender is unknown.
 * Another client's calls are answered during each flood.
 */

const WRONG_TOKEN = "wrong-token-0123456789";
/** Many times any limit. */
const FLOOD_FRAMES = 20_000;
const FLOOD_BATCH = 100;
/** What a connection may send before its first admitted call. */
const UNPROVEN_BYTES = 256 * 1024;
const FILE_BYTES = 2 * 2 ** 20;

const agent = forAllTests(await startSocketAgent());
const other = forAllTests(await RawHttp2.dial(agent));
assert.equal(await other.ask("Health", agent.token), "0");

describe("a client that sends what is of no use", () => {
  /** Sends `piece` until the agent refuses the client; other calls are made meanwhile. */
  async function flood(peer: RawHttp2, piece: () => Uint8Array): Promise<void> {
    const isOver = (): boolean => peer.isEnded || peer.frames.some(({ type }) => type === FRAME.goaway);
    for (let sent = 0; sent < FLOOD_FRAMES && !isOver(); sent += FLOOD_BATCH) {
      peer.send(...Array.from({ length: FLOOD_BATCH }, piece));
      await peer.flushed();
      assert.equal(await other.ask("Health", agent.token), "0");
    }
    if (isOver()) return;
    // It is answered only where none of the others was refused.
    const isAnswered = await peer.pinged().then(
      () => true,
      () => false,
    );
    assert.equal(isAnswered, false, "the agent has taken them all");
  }

  /** A stream that the agent has reset because its request has no path. */
  async function resetStream(peer: RawHttp2, token: string): Promise<number> {
    const stream = peer.open(callFields("Health", token).filter(([name]) => name !== ":path"));
    assert.equal(await peer.resetCode(stream), CODE.protocol);
    return stream;
  }

  const FLOODS: readonly [string, (stream: number, token: string) => Buffer][] = [
    [
      "HEADERS for a request that was reset",
      (stream, token) =>
        frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, headerBlock(callFields("Health", token))),
    ],
    ["DATA for a request that was reset", (stream) => frame(FRAME.data, 0, stream, Buffer.of(1))],
    ["GOAWAY", () => frame(FRAME.goaway, 0, 0, Buffer.alloc(8))],
    ["answers to PINGs that were never sent", () => frame(FRAME.ping, FLAG.ack, 0, Buffer.alloc(8))],
    ["WINDOW_UPDATE", () => frame(FRAME.windowUpdate, 0, 0, uint32(1))],
    ["WINDOW_UPDATE for a request that was reset", (stream) => frame(FRAME.windowUpdate, 0, stream, uint32(1))],
    ["PINGs", () => frame(FRAME.ping, 0, 0, Buffer.alloc(8))],
  ];
  for (const [name, piece] of FLOODS) {
    for (const whose of ["the right token", "a wrong token"]) {
      test(`${name}, with ${whose}, ends with ENHANCE_YOUR_CALM`, async () => {
        const token = whose === "a wrong token" ? WRONG_TOKEN : agent.token;
        // A GOAWAY would end a connection without a request before the flood.
        using peer = await RawHttp2.dial(agent, { windowBytes: 65_535 });
        const call = peer.call("Exec", token, undefined, false);
        const stream = await resetStream(peer, token);
        assert.ok(call > 0);
        await flood(peer, () => piece(stream, token));
        assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
        await peer.ended();
      });
    }
  }

  test("calls with a wrong token, one after another, end with ENHANCE_YOUR_CALM", async () => {
    using peer = await RawHttp2.dial(agent);
    await flood(peer, () => {
      peer.call("Health", WRONG_TOKEN, Buffer.alloc(0));
      return Buffer.alloc(0);
    });
    assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
    await peer.ended();
  });

  test("a request with a wrong token that goes on and on ends with ENHANCE_YOUR_CALM after 256 KiB", async () => {
    using peer = await RawHttp2.dial(agent);
    peer.data(peer.call("WriteFile", WRONG_TOKEN, undefined, false), Buffer.alloc(UNPROVEN_BYTES), false);
    assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
    await agent.logged("connection_failed", ({ reason }) => String(reason).startsWith("no request was let in within"));
    await peer.ended();
  });

  test("with the right token, as much in its first request as in any other is taken", async () => {
    using peer = await RawHttp2.dial(agent);
    const stream = peer.open(callFields("Health", agent.token));
    const message = envelope(Buffer.alloc(UNPROVEN_BYTES));
    // An unknown field, of bytes.
    Buffer.of(0x7a, 0xfc, 0xff, 0x0f).copy(message, 5);
    peer.data(stream, message.subarray(0, 200 * 1024), false);
    peer.send(frame(FRAME.ping, 0, 0, Buffer.from("see this")));
    await peer.next(({ type, flags, payload }) => type === FRAME.ping && flags === FLAG.ack && payload.length === 8);
    peer.data(stream, message.subarray(200 * 1024), true);
    assert.equal((await peer.status(stream)).get("grpc-status"), "0");
  });

  test("windows that are opened for every KiB that was read are of use", async () => {
    using peer = await RawHttp2.dial(agent, { windowBytes: 65_535 });
    const stream = peer.call("ReadFile", agent.token, readRequest("/dev/zero"));
    assert.ok(stream > 0);
    using reader = await RawHttp2.dial(agent, { windowBytes: 65_535 });
    const path = process.execPath;
    const reading = reader.call("ReadFile", agent.token, readRequest(path));
    let at = 0;
    for (let read = 0; read < FILE_BYTES;) {
      const piece = await reader.next(({ type, stream: of }) => {
        return type === FRAME.data && of === reading && reader.frames.length > at;
      });
      at = reader.frames.length;
      assert.ok(piece);
      read += 16_384;
      for (let part = 0; part < 16; part++) {
        reader.send(frame(FRAME.windowUpdate, 0, 0, uint32(1024)), frame(FRAME.windowUpdate, 0, reading, uint32(1024)));
      }
    }
    assert.ok(reader.frames.every(({ type }) => type !== FRAME.goaway));
  });
});
