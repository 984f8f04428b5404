import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { StatPathRequestSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { ENDLESS_OUTPUT, execStart } from "../../fixtures/raw-calls.ts";
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
 * What a client may not do, and the code that it gets. In each test a second connection gets its answers meanwhile and
 * afterwards.
 */

const CONTINUATION_LIMIT = 4;
const HEADER_LIMIT_BYTES = 16 * 1024;
/** Many times any limit on frames that carry nothing. */
const FLOOD_FRAMES = 20_000;
const RESETS = 10_000;
/** The agent may refuse between two batches: a client that sends on without a look may lose that to a reset. */
const FLOOD_BATCH = 100;
const WRONG_TOKEN = "wrong-token-0123456789";
/** C-core clients fail above 8 KiB of metadata; there are other fields beside the status. */
const STATUS_LIMIT_BYTES = 6 * 1024;
const SLEEP = execStart({ args: ["sleep", "1000"], stdin: true });

const agent = forAllTests(await startSocketAgent());
const other = forAllTests(await RawHttp2.dial(agent));
assert.equal(await other.ask("Health", agent.token), "0");

describe("a client that goes too far", () => {
  /** Over TLS; above it the unix socket is no different. */
  function dial(): Promise<RawHttp2> {
    return RawHttp2.dial(agent);
  }

  /** A connection on which a call was answered, so that no limit of a new one applies. */
  async function proven(): Promise<RawHttp2> {
    const peer = await dial();
    assert.equal(await peer.ask("Health", agent.token), "0");
    return peer;
  }

  async function othersAreServed(): Promise<void> {
    assert.equal(await other.ask("Health", agent.token), "0");
    using newcomer = await dial();
    assert.equal(await newcomer.ask("Health", agent.token), "0");
  }

  /** Sends `piece` that many times, or until the agent refuses the client; other calls are made meanwhile. */
  async function flood(peer: RawHttp2, times: number, piece: () => Uint8Array): Promise<void> {
    const isOver = (): boolean => peer.frames.some(({ type }) => type === FRAME.goaway);
    for (let sent = 0; sent < times && !isOver(); sent += FLOOD_BATCH) {
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
    test(`by 10,000 calls that it resets at once, with ${whose}, ends with ENHANCE_YOUR_CALM`, async () => {
      using peer = await dial();
      const block = headerBlock(callFields("Exec", token()));
      let stream = -1;
      await flood(peer, RESETS, () => {
        stream += 2;
        const head = frame(FRAME.headers, FLAG.endHeaders, stream, block);
        return Buffer.concat([head, frame(FRAME.reset, 0, stream, uint32(CODE.cancel))]);
      });
      assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
      await peer.ended();
      await othersAreServed();
    });
  }

  test("by headers over 16 KiB is told ENHANCE_YOUR_CALM", async () => {
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
    await othersAreServed();
  });

  test("by a fifth CONTINUATION frame ends with ENHANCE_YOUR_CALM; four are taken", async () => {
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
    await peer.ended();
    await othersAreServed();
  });

  const REFUSED = headerBlock(callFields("Health", WRONG_TOKEN));
  for (const [name, piece] of [
    ["PINGs", () => frame(FRAME.ping, 0, 0, Buffer.alloc(8))],
    ["SETTINGS", () => frame(FRAME.settings, 0, 0)],
    ["refused calls", (count) => frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, 1_001 + 2 * count, REFUSED)],
  ] as const satisfies readonly [string, (count: number) => Buffer][]) {
    test(`by ${name} whose answers it does not read is ended`, async () => {
      using peer = await proven();
      peer.call("Exec", agent.token, ENDLESS_OUTPUT, false);
      await peer.next(({ type }) => type === FRAME.data, "output");
      peer.stopReading();
      let count = 0;
      await flood(peer, FLOOD_FRAMES, () => piece(count++));
      peer.readOn();
      await peer.ended();
      await othersAreServed();
    });
  }

  test("by DATA frames without data ends with ENHANCE_YOUR_CALM", async () => {
    using peer = await proven();
    const stream = peer.call("Exec", agent.token, SLEEP, false);
    await flood(peer, FLOOD_FRAMES, () => frame(FRAME.data, 0, stream));
    assert.equal(await peer.goawayCode(), CODE.enhanceYourCalm);
    await peer.ended();
    await othersAreServed();
  });

  test("by no request at all is ended after five seconds, and the log says why", async () => {
    using peer = await dial();
    await peer.ended();
    await agent.logged("connection_failed", ({ reason }) => String(reason).startsWith("no request within 5000 ms"));
    await othersAreServed();
  });

  test("by a path of 4,000 bytes that are not ASCII gets its status, small enough for any client", async () => {
    const path = join("/", ...Array.from({ length: 20 }, () => "ü".repeat(100)));
    assert.equal(Buffer.byteLength(path), 4_020);
    using peer = await proven();
    const request = toBinary(StatPathRequestSchema, create(StatPathRequestSchema, { path }));
    const fields = await peer.status(peer.call("StatPath", agent.token, request));
    assert.equal(fields.get("grpc-status"), "5");
    const bytes = Array.from(fields).reduce((sum, [name, value]) => sum + name.length + value.length, 0);
    assert.ok(bytes < STATUS_LIMIT_BYTES, `${bytes} bytes`);
  });
});
