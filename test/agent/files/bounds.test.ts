import assert from "node:assert/strict";
import { readFile, truncate, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { ActivityClock, AgentError, Stamps } from "../../../src/agent/domain/index.ts";
import { Files, FileSystem } from "../../../src/agent/files/index.ts";
import { nodeTimers } from "../../../src/agent/platform/index.ts";
import { ReadFileRequestSchema, type WriteFileRequest } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { systemClock } from "../../fixtures/clocks.ts";
import { dataMessage, failureOf, FileCalls, headerMessage, openFiles, testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { NEEDS_INSIGHT } from "../../fixtures/privileges.ts";
import { memoryOf } from "../../fixtures/proc.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import { RpcFailure } from "../../fixtures/rpc-clients.ts";
import { addon } from "../../fixtures/spawning.ts";

const MIB = 2 ** 20;
const CALLS = 256;
const CALLS_OF_A_CONNECTION = 64;
const MINUTE_MS = 60_000;

function refused(error: unknown): boolean {
  return error instanceof RpcFailure && error.reason === "TOO_MANY_FILE_CALLS";
}

const TRANSFERS = 64;
const CLIENTS = 8;
/** Together more than the bound, so that an agent which held all of them would break it. */
const EACH_BYTES = 4 * MIB;
/**
 * Content of a written message. One over 256 KiB counts among all unread requests until it is written, and a busy
 * machine may then have so many that the agent refuses one; docs/agent/files.md.
 */
const PIECE_BYTES = MIB / 8;
/** On top of the agent's memory at rest; docs/agent/files.md. */
const BOUND_MIB = 160;

const directory = forAllTests(await testDirectory());
const agent = forAllTests(await startAgent());
const clients = Array.from({ length: CLIENTS }, () => forAllTests(new FileCalls(agent)));

describe("stalled file calls", () => {
  it("file calls are limited to 64 per connection and 256 in all", NEEDS_INSIGHT, async () => {
    await writeFile(directory.at("large"), Buffer.alloc(4 * MIB));
    await using own = await startAgent();
    const path = directory.at("large");
    const request = toBinary(ReadFileRequestSchema, create(ReadFileRequestSchema, { path }));
    const peers: RawHttp2[] = [];
    try {
      for (let open = CALLS_OF_A_CONNECTION; open <= CALLS; open += CALLS_OF_A_CONNECTION) {
        const peer = await RawHttp2.dial(own, { windowBytes: 0 });
        peers.push(peer);
        for (let count = 0; count < CALLS_OF_A_CONNECTION; count++) peer.call("ReadFile", own.token, request);
        assert.ok(await peer.holds(() => peer.answered.size === CALLS_OF_A_CONNECTION));
        const refusedStream = peer.call("ReadFile", own.token, request);
        assert.ok(await peer.holds(() => peer.hasClosed(refusedStream)), "one more of this connection is refused");
      }
      using calls = new FileCalls(own);
      const failure = await failureOf(calls.write({ path: directory.at("new") }, "x"));
      assert.ok(refused(failure));
      assert.deepEqual(failure.metadata, { limit: String(CALLS), connectionLimit: String(CALLS_OF_A_CONNECTION) });
      assert.equal((await calls.stat(path)).size, BigInt(4 * MIB));
      assert.equal((await openFiles(own.pid)).filter((file) => file === path).length, CALLS);
      peers[0]?.[Symbol.dispose]();
      // The agent learns of it a moment later.
      for (let isIn = false; !isIn;) {
        const outcome: unknown = await calls.write({ path: directory.at("new") }, "x").catch((error: unknown) => error);
        isIn = !(outcome instanceof Error);
        assert.ok(isIn || refused(outcome), String(outcome));
      }
      assert.equal(await readFile(directory.at("new"), "utf8"), "x");
    } finally {
      for (const peer of peers) peer[Symbol.dispose]();
    }
    await until(async () => !(await openFiles(own.pid)).includes(path), `the agent has closed ${path}`);
  });

  it("at the limit, only file calls stalled for a minute are evicted", async () => {
    await writeFile(directory.at("large"), Buffer.alloc(MIB));
    let nowMs = 0;
    const files = new Files({
      fileSystem: new FileSystem(addon, nodeTimers),
      activity: new ActivityClock(new Stamps(systemClock)),
      clock: { monotonicMs: () => nowMs },
      newFileOwner: () => Promise.resolve({ uid: 0, gid: 0 }),
    });
    const request = {
      path: Buffer.from(directory.at("large")),
      beneath: Buffer.alloc(0),
      noSymlinks: false,
      offsetBytes: 0n,
      lengthBytes: 0n,
      holes: false,
    };
    const connection = {};
    const given: number[] = [];
    // A call may get its second chunk at any time after its first.
    let stillestFirst: number[] = [];
    let stillest: number | undefined;
    const progressed = (number: number): void => {
      stillestFirst = [...stillestFirst.filter((other) => other !== number), number];
    };
    const start = (number: number, onChunk: (release: () => void) => void): Promise<void> => {
      const controller = new AbortController();
      const held: (() => void)[] = [];
      const failSoon = (error: AgentError): void => {
        given.push(number);
        [stillest] = stillestFirst;
        controller.abort(error);
        for (const release of held) release();
      };
      const chunk: Parameters<Files["read"]>[1]["output"] = (_bytes, _attributes, release) => {
        held.push(release);
        onChunk(release);
      };
      return files.read(
        request,
        { output: chunk, hole: () => Promise.resolve() },
        { connection, signal: controller.signal, failWithin1s: failSoon },
      );
    };
    const stalled = Array.from({ length: CALLS_OF_A_CONNECTION }, (_, number) => {
      const began = Promise.withResolvers<() => void>();
      const reading = start(number, (release) => {
        progressed(number);
        began.resolve(release);
      });
      return { reading: reading.catch((error: unknown) => error), began: began.promise };
    });
    const [first] = await Promise.all(stalled.map(({ began }) => began));
    const read = (): Promise<void> => start(-1, (release) => release());
    nowMs = MINUTE_MS - 1;
    progressed(0);
    first?.();
    await assert.rejects(read(), { reason: "TOO_MANY_FILE_CALLS" });
    nowMs = MINUTE_MS;
    await read();
    assert.deepEqual(given, [stillest]);
    assert.notEqual(stillest, 0, "the first made progress a moment ago");
    const ended = await stalled[stillest ?? 0]?.reading;
    assert.ok(ended instanceof AgentError && ended.reason === "TOO_MANY_FILE_CALLS");
    await read();
    assert.equal(given.length, 1, "there was room again");
  });
});

/** Runs 64 transfers at once, spread over the connections; returns the most memory seen, and the slowest Health. */
async function measured(transfer: (files: FileCalls, index: number) => Promise<void>): Promise<number> {
  const restMiB = memoryOf(agent.pid).ownBytes / MIB;
  let mostMiB = 0;
  const over = new AbortController();
  using health = clientOf(agent);
  const transfers = Promise.all(
    Array.from({ length: TRANSFERS }, (_, i) => transfer(clients[i % CLIENTS] as FileCalls, i)),
  ).finally(() => over.abort());
  while (!over.signal.aborted) {
    assert.ok((await health.health()).alive);
    mostMiB = Math.max(mostMiB, memoryOf(agent.pid).ownBytes / MIB);
    // Sample the memory while the transfers run.
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await transfers;
  return mostMiB - restMiB;
}

describe("64 transfers at once", () => {
  it("64 concurrent file reads stay within the memory bound, and Health still answers", async (t) => {
    const path = directory.at("read");
    await writeFile(path, "");
    await truncate(path, EACH_BYTES);
    const extraMiB = await measured(async (files) => {
      let received = 0;
      for await (const chunk of files.chunks({ path })) {
        received += chunk.data.length;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      assert.equal(received, EACH_BYTES);
    });
    t.diagnostic(`${extraMiB.toFixed(0)} MiB`);
    assert.ok(extraMiB < BOUND_MIB, `${extraMiB} MiB`);
  });

  it("64 concurrent file writes stay within the memory bound, and Health still answers", async (t) => {
    const extraMiB = await measured(async (files, index) => {
      async function* messages(): AsyncGenerator<WriteFileRequest> {
        yield headerMessage({ path: directory.at(`written-${index}`), size: BigInt(EACH_BYTES) });
        for (let i = 0; i < EACH_BYTES / PIECE_BYTES; i++) yield dataMessage(Buffer.alloc(PIECE_BYTES, index));
      }
      await files.writeMessages(messages());
      assert.ok((await readFile(directory.at(`written-${index}`))).equals(Buffer.alloc(EACH_BYTES, index)));
    });
    t.diagnostic(`${extraMiB.toFixed(0)} MiB`);
    assert.ok(extraMiB < BOUND_MIB, `${extraMiB} MiB`);
  });
});
