import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { ActivityClock, AgentError, type Caller, Stamps } from "../../../src/agent/domain/index.ts";
import { Files, FileSystem, type ReadRequest } from "../../../src/agent/files/index.ts";
import { ReadFileRequestSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { nodeTimers } from "../../../src/agent/platform/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { failureOf, FileCalls, openFiles, testFolder } from "../../fixtures/files.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import { RpcFailure } from "../../fixtures/rpc-clients.ts";
import { addon } from "../../fixtures/spawning.ts";
import { systemClock } from "../../fixtures/clocks.ts";
import { withoutCapability } from "../../fixtures/privileges.ts";

const MIB = 2 ** 20;
const CALLS = 256;
const CALLS_OF_A_CONNECTION = 64;
const MINUTE_MS = 60_000;

/** To look at the agent's descriptors. */
const LOOKS_INSIDE = { skip: withoutCapability("CAP_SYS_PTRACE") };

function refused(error: unknown): boolean {
  return error instanceof RpcFailure && error.reason === "TOO_MANY_FILE_CALLS";
}

describe("file calls that stand still", () => {
  it(
    "are at most 64 of a connection and 256 in all; more are refused until one ends, and StatPath is answered",
    LOOKS_INSIDE,
    async () => {
      await using folder = await testFolder();
      await writeFile(folder.at("large"), Buffer.alloc(4 * MIB));
      await using agent = await startAgent();
      const path = folder.at("large");
      const request = toBinary(ReadFileRequestSchema, create(ReadFileRequestSchema, { path }));
      const peers: RawHttp2[] = [];
      try {
        for (let open = CALLS_OF_A_CONNECTION; open <= CALLS; open += CALLS_OF_A_CONNECTION) {
          const peer = await RawHttp2.dial(agent, { windowBytes: 0 });
          peers.push(peer);
          for (let count = 0; count < CALLS_OF_A_CONNECTION; count++) peer.call("ReadFile", agent.token, request);
          assert.ok(await peer.holds(() => peer.answered.size === CALLS_OF_A_CONNECTION));
          const refusedStream = peer.call("ReadFile", agent.token, request);
          assert.ok(await peer.holds(() => peer.hasClosed(refusedStream)), "one more of this connection is refused");
        }
        using calls = new FileCalls(agent);
        const failure = await failureOf(calls.write({ path: folder.at("new") }, "x"));
        assert.ok(refused(failure));
        assert.deepEqual(failure.metadata, { limit: String(CALLS), connectionLimit: String(CALLS_OF_A_CONNECTION) });
        assert.equal((await calls.stat(path)).size, BigInt(4 * MIB));
        assert.equal((await openFiles(agent.pid)).filter((file) => file === path).length, CALLS);
        peers[0]?.[Symbol.dispose]();
        // The agent learns of it a moment later.
        for (let isIn = false; !isIn;) {
          const outcome: unknown = await calls.write({ path: folder.at("new") }, "x").catch((error: unknown) => error);
          isIn = !(outcome instanceof Error);
          assert.ok(isIn || refused(outcome), String(outcome));
        }
        assert.equal(await readFile(folder.at("new"), "utf8"), "x");
      } finally {
        for (const peer of peers) peer[Symbol.dispose]();
      }
      await until(async () => !(await openFiles(agent.pid)).includes(path), `the agent has closed ${path}`);
    },
  );

  it("give way after a minute without progress when their place is needed, the one that stood still for longest first", async () => {
    await using folder = await testFolder();
    await writeFile(folder.at("large"), Buffer.alloc(MIB));
    let nowMs = 0;
    const files = new Files({
      fileSystem: new FileSystem(addon, nodeTimers),
      activity: new ActivityClock(new Stamps(systemClock)),
      clock: { monotonicMs: () => nowMs },
      newFileOwner: () => Promise.resolve({ uid: 0, gid: 0 }),
    });
    const request: ReadRequest = {
      path: Buffer.from(folder.at("large")),
      beneath: Buffer.alloc(0),
      noSymlinks: false,
      offsetBytes: 0n,
      lengthBytes: 0n,
    };
    const connection = {};
    const given: number[] = [];
    // A call may get its second chunk at any time after its first.
    let stillestFirst: number[] = [];
    const progressed = (number: number): void => {
      stillestFirst = [...stillestFirst.filter((other) => other !== number), number];
    };
    let stillest: number | undefined;
    const start = async (number: number, onChunk: (release: () => void) => void): Promise<void> => {
      const controller = new AbortController();
      const held: (() => void)[] = [];
      const caller: Caller = {
        connection,
        signal: controller.signal,
        failSoon: (error) => {
          given.push(number);
          [stillest] = stillestFirst;
          controller.abort(error);
          for (const release of held) release();
        },
      };
      const chunk = (_bytes: Uint8Array, _attributes: unknown, release: () => void): void => {
        held.push(release);
        onChunk(release);
      };
      await files.read(request, chunk, caller);
    };
    const releases: (() => void)[] = [];
    const stalled = Array.from({ length: CALLS_OF_A_CONNECTION }, (_, number) => {
      const began = new Promise<void>((resolve) => {
        releases[number] = resolve;
      });
      const slow: (() => void)[] = [];
      const reading = start(number, (release) => {
        progressed(number);
        slow.push(release);
        releases[number]?.();
      });
      return { reading: reading.catch((error: unknown) => error), began, slow };
    });
    for (const { began } of stalled) await began;
    const read = (): Promise<void> => start(-1, (release) => release());
    nowMs = MINUTE_MS - 1;
    progressed(0);
    stalled[0]?.slow.shift()?.();
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
