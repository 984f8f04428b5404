import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { ENDLESS_OUTPUT, execStart, readRequest } from "../../fixtures/raw-calls.ts";
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
import { startSocketAgent } from "../../fixtures/agent.ts";

/*
 * What a client may not do, and the code that it gets. In each test a second connection gets its answers meanwhile and
 * afterwards.
 */

const CONTINUATION_LIMIT = 4;
const HEADER_LIMIT_BYTES = 16 * 1024;
/** Many times any limit on frames that carry nothing. */
const FLOOD_FRAMES = 20_000;
/** The agent may refuse between two batches: a client that sends on without a look may lose that to a reset. */
const FLOOD_BATCH = 100;
const WRONG_TOKEN = "wrong-token-0123456789";
/** What a connection may send before its first admitted call. */
const UNPROVEN_BYTES = 256 * 1024;
const FILE_BYTES = 2 * 2 ** 20;
const SLEEP = execStart({ args: ["sleep", "1000"], stdin: true });

const agent = forAllTests(await startSocketAgent());
const other = forAllTests(await RawHttp2.dial(agent));
assert.equal(await other.ask("Health", agent.token), "0");

describe("a client that exceeds a limit", () => {
  /**
   * A connection over TLS (which the limits treat like the unix socket above it) on which a call was answered, so that
   * no limit of a new one applies.
   */
  async function proven(): Promise<RawHttp2> {
    const peer = await RawHttp2.dial(agent);
    assert.equal(await peer.ask("Health", agent.token), "0");
    return peer;
  }

  afterEach(async () => {
    assert.equal(await other.ask("Health", agent.token), "0");
    (await proven())[Symbol.dispose]();
  });

  /** Sends `piece` 20,000 times, or until the agent refuses the client; other calls are made meanwhile. */
  async function flood(peer: RawHttp2, piece: () => Uint8Array): Promise<void> {
    const isOver = (): boolean => peer.isEnded || peer.frames.some(({ type }) => type === FRAME.goaway);
    for (let sent = 0; sent < FLOOD_FRAMES && !isOver(); sent += FLOOD_BATCH) {
      peer.send(...Array.from({ length: FLOOD_BATCH }, piece));
      await peer.flushed();
      assert.equal(await other.ask("Health", agent.token), "0");
    }
  }

  for (const [whose, token] of [
    ["the right token", (): string => agent.token],
    ["a wrong token", (): string => WRONG_TOKEN],
    ["no token", (): undefined => undefined],
  ] as const) {
    test(`20,000 immediately reset calls with ${whose} end with ENHANCE_YOUR_CALM`, async () => {
      using peer = await RawHttp2.dial(agent);
      const block = headerBlock(callFields("Exec", token()));
      let stream = -1;
      await flood(peer, () => {
        stream += 2;
        const head = frame(FRAME.headers, FLAG.endHeaders, stream, block);
        return Buffer.concat([head, frame(FRAME.reset, 0, stream, uint32(CODE.cancel))]);
      });
      assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
    });
  }

  test("headers over 16 KiB end the connection with ENHANCE_YOUR_CALM", async () => {
    using peer = await proven();
    const [, ...rest] = callFields("Health", agent.token);
    const large = "x".repeat(HEADER_LIMIT_BYTES);
    const block = headerBlock([[":method", "POST"], ...rest, ["x-large", large]]);
    const [first, second] = [block.subarray(0, HEADER_LIMIT_BYTES - 64), block.subarray(HEADER_LIMIT_BYTES - 64)];
    const stream = 3;
    peer.send(frame(FRAME.headers, FLAG.endStream, stream, first));
    peer.send(frame(FRAME.continuation, FLAG.endHeaders, stream, second));
    const refusal = await peer.next(
      ({ type, stream: of }) => type === FRAME.goaway || (type === FRAME.reset && of === stream),
      "a refusal",
    );
    assert.equal(refusal.payload.readUInt32BE(refusal.type === FRAME.goaway ? 4 : 0), CODE.enhanceYourCalm);
  });

  test("a fifth CONTINUATION frame ends the connection with ENHANCE_YOUR_CALM", async () => {
    const send = (peer: RawHttp2, continuations: number): void => {
      const block = headerBlock(callFields("Health", agent.token));
      peer.send(frame(FRAME.headers, 0, 3, block.subarray(0, 1)));
      for (let at = 1; at < continuations; at++) {
        peer.send(frame(FRAME.continuation, 0, 3, block.subarray(at, at + 1)));
      }
      peer.send(frame(FRAME.continuation, FLAG.endHeaders, 3, block.subarray(continuations)));
      peer.send(frame(FRAME.data, FLAG.endStream, 3, envelope()));
    };
    using modest = await proven();
    send(modest, CONTINUATION_LIMIT);
    assert.equal((await modest.status(3)).get("grpc-status"), "0");
    using peer = await proven();
    send(peer, CONTINUATION_LIMIT + 1);
    assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
  });

  const REFUSED = headerBlock(callFields("Health", WRONG_TOKEN));
  for (const [name, piece] of [
    ["PINGs", () => frame(FRAME.ping, 0, 0, Buffer.alloc(8))],
    ["SETTINGS", () => frame(FRAME.settings, 0, 0)],
    ["refused calls", (count) => frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, 1_001 + 2 * count, REFUSED)],
  ] as const satisfies readonly [string, (count: number) => Buffer][]) {
    test(`a flood of ${name} with unread answers ends the connection`, async () => {
      using peer = await proven();
      peer.call("Exec", agent.token, ENDLESS_OUTPUT, false);
      await peer.next(({ type }) => type === FRAME.data, "output");
      peer.stopReading();
      let count = 0;
      await flood(peer, () => piece(count++));
      peer.readOn();
      await peer.ended();
    });
  }

  test("a flood of empty DATA frames ends the connection with ENHANCE_YOUR_CALM", async () => {
    using peer = await proven();
    const stream = peer.call("Exec", agent.token, SLEEP, false);
    await flood(peer, () => frame(FRAME.data, 0, stream));
    assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
  });

  test("a connection without a request is closed after five seconds and logged", async () => {
    using peer = await RawHttp2.dial(agent);
    await peer.ended();
    await agent.logged("connection_failed", ({ reason }) => String(reason).startsWith("no request within 5000 ms"));
  });

  const FLOODS: readonly [string, (stream: number, token: string) => Buffer][] = [
    [
      "HEADERS after RST_STREAM",
      (stream, token) =>
        frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, headerBlock(callFields("Health", token))),
    ],
    ["DATA after RST_STREAM", (stream) => frame(FRAME.data, 0, stream, Buffer.of(1))],
    ["GOAWAY", () => frame(FRAME.goaway, 0, 0, Buffer.alloc(8))],
    ["unsolicited PING answers", () => frame(FRAME.ping, FLAG.ack, 0, Buffer.alloc(8))],
    ["WINDOW_UPDATE", () => frame(FRAME.windowUpdate, 0, 0, uint32(1))],
    ["WINDOW_UPDATE after RST_STREAM", (stream) => frame(FRAME.windowUpdate, 0, stream, uint32(1))],
    ["PINGs", () => frame(FRAME.ping, 0, 0, Buffer.alloc(8))],
  ];
  for (const [name, piece] of FLOODS) {
    for (const whose of ["the right token", "a wrong token"]) {
      test(`a flood of ${name} with ${whose} ends with ENHANCE_YOUR_CALM`, async () => {
        const token = whose === "a wrong token" ? WRONG_TOKEN : agent.token;
        // A GOAWAY would end a connection without a request before the flood.
        using peer = await RawHttp2.dial(agent, { windowBytes: 65_535 });
        peer.call("Exec", token, undefined, false);
        // A stream that the agent resets because its request has no path.
        const stream = peer.open(callFields("Health", token).filter(([field]) => field !== ":path"));
        assert.equal(await peer.resetCode(stream), CODE.protocol);
        await flood(peer, () => piece(stream, token));
        assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
      });
    }
  }

  test("repeated calls with a wrong token end the connection with ENHANCE_YOUR_CALM", async () => {
    using peer = await RawHttp2.dial(agent);
    await flood(peer, () => {
      peer.call("Health", WRONG_TOKEN, Buffer.alloc(0));
      return Buffer.alloc(0);
    });
    assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
  });

  test("a connection ends with ENHANCE_YOUR_CALM after 256 KiB without a valid token", async () => {
    using peer = await RawHttp2.dial(agent);
    peer.data(peer.call("WriteFile", WRONG_TOKEN, undefined, false), Buffer.alloc(UNPROVEN_BYTES), false);
    assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
    await agent.logged("connection_failed", ({ reason }) =>
      String(reason).startsWith("no request was authenticated in "),
    );
  });

  test("an authenticated first request may be as large as any other", async () => {
    using peer = await RawHttp2.dial(agent);
    const stream = peer.open(callFields("Health", agent.token));
    const message = envelope(Buffer.alloc(UNPROVEN_BYTES));
    // An unknown field, of bytes.
    Buffer.of(0x7a, 0xfc, 0xff, 0x0f).copy(message, 5);
    peer.data(stream, message.subarray(0, 200 * 1024), false);
    await peer.pinged();
    peer.data(stream, message.subarray(200 * 1024), true);
    assert.equal((await peer.status(stream)).get("grpc-status"), "0");
  });

  test("a client that reads may send many small WINDOW_UPDATE frames", async () => {
    using reader = await RawHttp2.dial(agent, { windowBytes: 65_535 });
    const reading = reader.call("ReadFile", agent.token, readRequest(process.execPath));
    for (let read = 0; read < FILE_BYTES; read += 16_384) {
      const at = reader.frames.length;
      await reader.next(({ type }) => type === FRAME.data && reader.frames.length > at);
      for (let part = 0; part < 16; part++) {
        reader.send(frame(FRAME.windowUpdate, 0, 0, uint32(1024)), frame(FRAME.windowUpdate, 0, reading, uint32(1024)));
      }
    }
    assert.ok(reader.frames.every(({ type }) => type !== FRAME.goaway));
  });
});
