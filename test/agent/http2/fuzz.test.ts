import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { DEFAULT_HTTP2_LIMITS } from "../../../src/agent/http2/limits.ts";
import { Http2Machine } from "../../../src/agent/http2/machine.ts";
import type { Http2Stream } from "../../../src/agent/http2/stream.ts";
import { callFields, frame, headerBlock, PREFACE, setting, uint32 } from "../../fixtures/raw-http2.ts";
import { type Random, seededRandom } from "../../fixtures/seeded-random.ts";

/*
 * Frames that are almost right, in any order and cut anywhere, through the machine without a socket. Nothing may throw,
 * nothing may be left, and no memory may grow with what a peer sends.
 */

const FRAMES = Number(process.env["FUZZ_FRAMES"] ?? 1_000_000);
const SEED = Number(process.env["FUZZ_SEED"] ?? 7_541);
/** Frames for a machine that survives that many. */
const MACHINE_FRAMES = 100;
/** One write of the machine, with the largest answer here. */
const OUTPUT_LIMIT_BYTES = 1024 * 1024;
/** Far less than the input: a million frames carry a gigabyte. */
const MEMORY_LIMIT_BYTES = 256 * 1024 * 1024;
const BLOCK = headerBlock(callFields("Exec", "token"));

describe("the HTTP/2 machine", () => {
  test(`the HTTP/2 machine survives ${FRAMES} malformed frames (seed ${SEED})`, (t) => {
    const random = seededRandom(SEED);
    let frames = 0;
    let machines = 0;
    let requests = 0;
    const reasons = new Map<string, number>();
    while (frames < FRAMES) {
      const peer = new Peer(random);
      machines++;
      for (let count = 0; count < MACHINE_FRAMES && peer.machine.failure === undefined; count++, frames++) peer.step();
      peer.end();
      requests += peer.requests;
      const { failure } = peer.machine;
      if (failure !== undefined) reasons.set(failure.message, (reasons.get(failure.message) ?? 0) + 1);
      const { arrayBuffers, heapUsed } = process.memoryUsage();
      assert.ok(arrayBuffers + heapUsed < MEMORY_LIMIT_BYTES, `${arrayBuffers + heapUsed} bytes are in use`);
    }
    const failures = Array.from(reasons.values()).reduce((sum, count) => sum + count, 0);
    t.diagnostic(`${machines} machines, ${requests} requests, ${failures} machines ended by a GOAWAY`);
    for (const [reason, count] of reasons) t.diagnostic(`${count} ${reason}`);
    assert.ok(requests > machines, "most machines get as far as requests");
    assert.ok(failures > machines / 10 && failures < machines, "some machines break the rules, others keep them");
  });
});

/** A machine, the handler of its requests, and its input. */
class Peer {
  readonly machine: Http2Machine;
  readonly #random: Random;
  readonly #open = new Set<Http2Stream>();
  readonly #paused = new Map<Http2Stream, number>();
  readonly #unwritten: (() => void)[] = [];
  #nextStream = 1;
  /** The last HEADERS asked for CONTINUATION. */
  #blockGoesOn = false;
  #nowMs = 0;
  #pending = 0;
  requests = 0;

  constructor(random: Random) {
    this.#random = random;
    this.machine = new Http2Machine({
      limits: DEFAULT_HTTP2_LIMITS,
      nowMs: () => this.#nowMs,
      events: { request: (stream) => this.#serve(stream), output: () => {}, maybeIdle: () => {}, failed: () => {} },
    });
    this.machine.receive(PREFACE);
    if (random.below(100) > 0) this.machine.receive(frame(4, 0, 0));
  }

  /** Sends a frame, in one piece or in several, and lets the other side write. */
  step(): void {
    const random = this.#random;
    this.#nowMs += random.below(20);
    const bytes = this.#frame();
    if (random.below(300) === 0) bytes[random.below(bytes.length)] = random.below(256);
    for (let at = 0; at < bytes.length;) {
      const end = random.below(4) === 0 ? at + 1 + random.below(bytes.length - at) : bytes.length;
      this.machine.receive(Buffer.from(bytes.subarray(at, end)));
      at = end;
    }
    if (random.below(3) > 0) this.#write();
    if (random.below(8) === 0) for (const stream of this.#paused.keys()) this.#resume(stream);
    assert.ok(this.machine.streams.size <= DEFAULT_HTTP2_LIMITS.streams);
  }

  /** Whatever has happened, the end leaves nothing behind. */
  end(): void {
    this.machine.drop("all", 8);
    this.#write();
    for (const written of this.#unwritten.splice(0)) written();
    assert.equal(this.machine.streams.size, 0);
    assert.equal(this.#open.size, 0, "every consumer received its end");
    assert.equal(this.#pending, 0, "every answer's memory was given back");
  }

  #write(): void {
    if (this.#random.below(2) === 0) for (const written of this.#unwritten.splice(0)) written();
    const batch = this.machine.take(64 * 1024);
    if (batch === undefined) return;
    assert.equal(
      batch.chunks.reduce((sum, chunk) => sum + chunk.length, 0),
      batch.sizeBytes,
    );
    assert.ok(batch.sizeBytes < OUTPUT_LIMIT_BYTES);
    this.#unwritten.push(batch.release);
  }

  #serve(stream: Http2Stream): void {
    this.requests++;
    this.#open.add(stream);
    const random = this.#random;
    let isOver = false;
    stream.consumer = {
      data: (slice) => {
        assert.equal(isOver, false);
        assert.ok(slice.length > 0);
        if (random.below(6) === 0) {
          stream.pause();
          this.#paused.set(stream, 0);
        }
        if (random.below(20) === 0) this.#answer(stream);
      },
      end: () => {
        assert.equal(isOver, false);
        this.#answer(stream);
      },
      closed: () => {
        assert.equal(isOver, false, "a stream ends once");
        isOver = true;
        this.#open.delete(stream);
        this.#paused.delete(stream);
      },
    };
    if (random.below(10) === 0) this.#answer(stream);
    if (random.below(10) === 0) stream.reset(8);
  }

  #answer(stream: Http2Stream): void {
    stream.respond({ ":status": "200", "content-type": "application/grpc+proto" });
    for (let count = this.#random.below(4); count > 0; count--) {
      this.#pending++;
      const large = this.#random.below(10) === 0;
      stream.write([Buffer.alloc(5), Buffer.alloc(this.#random.below(large ? 200_000 : 2_000))], () => this.#pending--);
    }
    if (this.#random.below(2) === 0) stream.end({ "grpc-status": String(this.#random.below(16)) });
  }

  #resume(stream: Http2Stream): void {
    this.#paused.delete(stream);
    stream.resume();
  }

  /** A frame of any type; mostly for a stream that is there, with a payload that fits. */
  #frame(): Buffer {
    const random = this.#random;
    if (this.#blockGoesOn) {
      this.#blockGoesOn = random.below(3) === 0;
      return frame(9, this.#blockGoesOn ? 0 : 4, this.#nextStream - 2, random.below(2) === 0 ? BLOCK : Buffer.alloc(0));
    }
    const kind = random.below(1_000);
    if (kind < 250 || this.#nextStream === 1) {
      const stream = this.#nextStream;
      this.#nextStream += 2;
      this.#blockGoesOn = random.below(50) === 0;
      return frame(1, random.below(2) | (this.#blockGoesOn ? 0 : 4), stream, this.#block());
    }
    const open = Array.from(this.machine.streams.keys());
    const known = open[random.below(Math.max(1, open.length))] ?? Math.max(1, this.#nextStream - 2);
    const stream = random.below(200) === 0 ? random.below(2 ** 31) : known;
    if (kind < 600) return frame(0, random.below(4) === 0 ? 1 : 0, stream, random.bytes(random.below(3_000)));
    if (kind < 850) return frame(8, 0, random.below(3) === 0 ? 0 : stream, uint32(random.below(100_000)));
    if (kind < 880) return frame(3, 0, stream, uint32(random.below(16)));
    if (kind < 920) return frame(6, random.below(2), 0, random.bytes(8));
    if (kind < 950) return frame(4, 0, 0, setting(4, random.below(1_000_000)));
    if (kind < 960) return frame(4, 0, 0, setting(1 + random.below(7), random.below(2 ** 31)));
    if (kind < 985) return frame(2, 0, stream, random.bytes(5));
    if (kind < 995) return frame(10 + random.below(200), random.below(256), stream, random.bytes(random.below(40)));
    return frame(random.below(10), random.below(256), random.below(8), random.bytes(random.below(40)));
  }

  #block(): Buffer {
    const random = this.#random;
    if (random.below(20) > 0) return BLOCK;
    const block = Buffer.concat([BLOCK, random.bytes(random.below(20))]);
    block[random.below(block.length)] = random.below(256);
    return block;
  }
}
