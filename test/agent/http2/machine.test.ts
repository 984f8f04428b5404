import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { DEFAULT_HTTP2_LIMITS, type Http2Limits } from "../../../src/agent/http2/limits.ts";
import { Http2Machine } from "../../../src/agent/http2/machine.ts";
import { FRAME_HEADER_BYTES } from "../../../src/agent/http2/protocol.ts";
import type { Http2Stream, StreamConsumer } from "../../../src/agent/http2/stream.ts";
import {
  callFields,
  CODE,
  FLAG,
  FRAME,
  frame,
  frameReader,
  headerBlock,
  PREFACE,
  INITIAL_WINDOW_SIZE,
  setting,
  uint32,
} from "../../fixtures/raw-http2.ts";

const FIELDS = { ":status": "200", "content-type": "application/grpc+proto" };
const STATUS = { "grpc-status": "0" };
const KIB = 1024;
const MAX_FRAME_SIZE = 5;

describe("the HTTP/2 machine", () => {
  test("a small answer's headers, message and trailers are sent in one chunk", () => {
    const peer = new Machine();
    peer.request(1, FLAG.endStream);
    const stream = peer.streams[0];
    stream?.respond(FIELDS);
    stream?.write([Buffer.alloc(20)]);
    stream?.end(STATUS);
    const chunks = peer.take();
    assert.equal(chunks.length, 1);
    assert.deepEqual(framesOf(chunks), [
      [FRAME.headers, 1],
      [FRAME.data, 1],
      [FRAME.headers, 1],
    ]);
  });

  for (const [frameBytes, turnFrames] of [
    [16 * KIB, 4],
    [32 * KIB, 2],
    [64 * KIB - 5, 1],
  ] as const)
    test(`a large answer is sent uncopied in frames of ${frameBytes} bytes`, () => {
      const peer = new Machine();
      peer.feed(frame(FRAME.settings, 0, 0, setting(MAX_FRAME_SIZE, frameBytes)));
      peer.feed(frame(FRAME.settings, 0, 0, setting(INITIAL_WINDOW_SIZE, 256 * KIB)));
      peer.feed(frame(FRAME.windowUpdate, 0, 0, uint32(256 * KIB)));
      peer.request(1, FLAG.endStream);
      peer.take();
      const payloadBytes = frameBytes - FRAME_HEADER_BYTES;
      // Two turns.
      const content = Buffer.alloc(2 * turnFrames * payloadBytes, 7);
      peer.streams[0]?.respond(FIELDS);
      peer.streams[0]?.write([content]);
      const payloads = peer.take().filter(({ buffer }) => buffer === content.buffer);
      const lengths = payloads.map(({ length }) => length);
      assert.deepEqual(lengths, Array<number>(2 * turnFrames).fill(payloadBytes));
    });

  test("concurrent large answers take turns on a connection, also across several writes", () => {
    const peer = new Machine();
    peer.feed(frame(FRAME.settings, 0, 0, setting(INITIAL_WINDOW_SIZE, 16 * KIB * KIB)));
    peer.feed(frame(FRAME.windowUpdate, 0, 0, uint32(64 * KIB * KIB)));
    for (const id of [1, 3, 5, 7, 9, 11]) peer.request(id, FLAG.endStream);
    for (const stream of peer.streams) {
      stream.respond(FIELDS);
      stream.write([Buffer.alloc(1024 * KIB)]);
    }
    const turns: number[] = [];
    for (let count = 0; count < 6; count++) {
      const ids = framesOf(peer.take(128 * KIB)).filter(([type]) => type === FRAME.data);
      turns.push(...new Set(ids.map(([, id]) => id)));
    }
    assert.deepEqual(new Set(turns.slice(0, 6)), new Set([1, 3, 5, 7, 9, 11]), "everybody's comes before a second one");
  });

  test("after stream windows shrink, each stream keeps at least half a window", () => {
    const peer = new Machine();
    const count = 80;
    for (let index = 0; index < count; index++) {
      peer.request(2 * index + 1, 0);
      peer.data(2 * index + 1, 100 * KIB);
    }
    peer.take();
    // The peer acknowledges every SETTINGS, one after the other.
    for (let acknowledged = 0; acknowledged < 4; acknowledged++) peer.feed(frame(FRAME.settings, FLAG.ack, 0));
    const narrow = DEFAULT_HTTP2_LIMITS.smallestStreamWindowBytes;
    for (const stream of peer.machine.streams.values()) {
      assert.ok(stream.receiveWindowBytes >= narrow / 2, `${stream.receiveWindowBytes} bytes may still be sent`);
    }
  });

  test("data of a paused request arrives unchanged, and its buffers are reused", () => {
    const peer = new Machine();
    const read: Buffer[] = [];
    const memories = new Set<ArrayBufferLike>();
    let resumed = 0;
    const data = (slice: Buffer): void => {
      read.push(Buffer.from(slice));
      memories.add(slice.buffer);
      // A consumer may pause at any time.
      if (++resumed % 2 === 0) peer.streams[0]?.pause();
    };
    peer.consumer = { data, end: () => {} };
    peer.request(1, 0);
    const stream = peer.streams[0];
    const counts: number[] = [];
    for (let round = 0; round < 3; round++) {
      stream?.pause();
      const sent = [1, 9_000, 16_384, 0, 3, 12_000, 16_384].map((length) => randomBytes(length));
      for (const bytes of sent) peer.feed(frame(FRAME.data, 0, 1, bytes));
      for (let count = 0; count < 3; count++) stream?.resume();
      assert.ok(Buffer.concat(read.splice(0)).equals(Buffer.concat(sent)));
      counts.push(memories.size);
    }
    assert.deepEqual(counts, [4, 4, 4]);
  });

  test("DATA beyond the stream's or connection's window ends that stream or connection", () => {
    const peer = new Machine({ streamWindowBytes: 20 * KIB, connectionWindowBytes: 64 * KIB });
    peer.request(1, 0);
    peer.streams[0]?.pause();
    peer.take();
    for (let sent = 0; sent < 2; sent++) peer.feed(frame(FRAME.data, 0, 1, Buffer.alloc(16 * KIB)));
    assert.deepEqual(framesOf(peer.take())[0], [FRAME.reset, 1]);
    for (const id of [3, 5, 7, 9, 11]) {
      peer.request(id, 0);
      peer.streams.at(-1)?.pause();
      peer.feed(frame(FRAME.data, 0, id, Buffer.alloc(16 * KIB)));
    }
    assert.equal(peer.machine.failure?.code, CODE.flowControl);
  });

  test("a request with an invalid content-length is reset (RFC 9113, 8.1.1)", () => {
    const cases = ["", "x", "-1", "+1", "1.0", "0x1", "1e3", "5, 5", "9".repeat(16), "18446744073709551616"];
    const peer = new Machine();
    for (const [index, value] of cases.entries()) {
      const id = 2 * index + 1;
      const fields = headerBlock([...callFields("Exec", "token"), ["content-length", value]]);
      peer.feed(frame(FRAME.headers, FLAG.endHeaders, id, fields));
      const reset = Buffer.concat(peer.take());
      assert.deepEqual([framesOf([reset]), reset.readUInt32BE(9)], [[[FRAME.reset, id]], CODE.protocol], value);
    }
    assert.equal(peer.streams.length, 0);
    for (const value of ["0", "1", "007", "9".repeat(15)]) {
      const fields = headerBlock([...callFields("Exec", "token"), ["content-length", value]]);
      peer.feed(frame(FRAME.headers, FLAG.endHeaders, 2 * (cases.length + peer.streams.length) + 1, fields));
    }
    assert.equal(peer.streams.length, 4);
  });

  for (const [name, type, payload] of [
    ["DATA", FRAME.data, Buffer.alloc(1)],
    ["RST_STREAM", FRAME.reset, uint32(CODE.cancel)],
    ["WINDOW_UPDATE", FRAME.windowUpdate, uint32(1)],
  ] as const)
    test(`${name} for an even stream ends the connection (RFC 9113, 5.1)`, () => {
      const peer = new Machine();
      peer.request(5, FLAG.endStream);
      peer.feed(frame(type, 0, 4, payload));
      assert.equal(peer.machine.failure?.code, CODE.protocol);
    });
});

/** A machine, its requests, and a peer that sends whatever the test says. */
class Machine {
  readonly machine: Http2Machine;
  readonly streams: Http2Stream[] = [];
  consumer: Pick<StreamConsumer, "data" | "end"> = { data: () => {}, end: () => {} };

  constructor(limits: Partial<Http2Limits> = {}) {
    this.machine = new Http2Machine({
      limits: { ...DEFAULT_HTTP2_LIMITS, ...limits },
      nowMs: () => 0,
      events: {
        request: (stream) => {
          this.streams.push(stream);
          stream.consumer = { ...this.consumer, closed: () => {} };
        },
        output: () => {},
        maybeIdle: () => {},
        failed: () => {},
      },
    });
    this.feed(PREFACE, frame(FRAME.settings, 0, 0), frame(FRAME.settings, FLAG.ack, 0));
    this.take();
  }

  feed(...frames: Buffer[]): void {
    this.machine.receive(Buffer.concat(frames));
  }

  request(streamId: number, flags: number): void {
    this.feed(frame(FRAME.headers, FLAG.endHeaders | flags, streamId, headerBlock(callFields("Exec", "token"))));
  }

  data(streamId: number, sizeBytes: number): void {
    for (let left = sizeBytes; left > 0; left -= 16 * KIB) {
      this.feed(frame(FRAME.data, 0, streamId, Buffer.alloc(Math.min(left, 16 * KIB))));
    }
  }

  take(limitBytes = 1024 * KIB): readonly Uint8Array[] {
    const batch = this.machine.take(limitBytes);
    batch?.release();
    return batch?.chunks ?? [];
  }
}

/** Types and streams of the frames that the chunks hold together. */
function framesOf(chunks: readonly Uint8Array[]): [type: number, stream: number][] {
  const frames: [number, number][] = [];
  frameReader((whole, type) => frames.push([type, whole.readUInt32BE(5)]))(Buffer.concat(chunks));
  return frames;
}
