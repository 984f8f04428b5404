import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { clientOf } from "../../fixtures/guest-client.ts";
import { until } from "../../fixtures/awake.ts";
import { DUTIES, ENDLESS_OUTPUT, LISTENERS, sockets, stoppedAtData } from "../../fixtures/raw-calls.ts";
import { CODE, FRAME, frame, RawHttp2, uint32 } from "../../fixtures/raw-http2.ts";
import { type SocketAgent, startSocketAgent } from "../../fixtures/agent.ts";
import { NEEDS_INSIGHT } from "../../fixtures/privileges.ts";

/* No peer can hold a slot or a descriptor, least of all through a restore. */

const CONNECTION_LIMIT = 64;
/** The connection's initial window. */
const WINDOW_BYTES = 65_535;

describe("connection slots", () => {
  test("after restore calls from 64 stalled clients, a new client can connect", async () => {
    await using agent = await startSocketAgent();
    using peers = new DisposableStack();
    for (let count = 1; count <= CONNECTION_LIMIT; count++) {
      const peer = peers.use(await RawHttp2.dial(LISTENERS["the TCP port"](agent)));
      peer.stopReading();
      peer.call("RunRestoreDuties", agent.token, DUTIES);
      await until(() => dutiesDone(agent) === count, `the duties of call ${count} are done`);
    }
    using newcomer = clientOf(agent);
    assert.equal((await newcomer.health()).alive, true);
  });

  for (const [listener, target] of Object.entries(LISTENERS)) {
    for (const [how, leave] of [
      ["close", (peer: RawHttp2) => peer[Symbol.dispose]()],
      ["stay", (peer: RawHttp2) => peer.finish()],
    ] as const) {
      test(`300 clients of ${listener} that read nothing and ${how} leak no slot`, NEEDS_INSIGHT, async () => {
        await using agent = await startSocketAgent();
        using client = await RawHttp2.dial(target(agent));
        assert.equal(await client.ask("Health", agent.token), "0");
        const atFirst = sockets(agent);
        using peers = new DisposableStack();
        for (let count = 0; count < 300; count++) {
          const peer = peers.use(await RawHttp2.dial(target(agent)));
          peer.stopReading();
          peer.call("Health", agent.token, Buffer.alloc(0));
          // With an error and without one.
          peer.send(frame(FRAME.goaway, 0, 0, uint32(0, count % 2 === 0 ? CODE.internal : CODE.none)));
          await peer.flushed();
          leave(peer);
        }
        await hasNoMore(agent, atFirst);
        using newcomer = await RawHttp2.dial(target(agent));
        assert.equal(await newcomer.ask("Health", agent.token), "0");
        assert.equal(await client.ask("Health", agent.token), "0");
      });
    }
  }
});

describe("restore steps and connection slots", () => {
  for (const [listener, target] of Object.entries(LISTENERS)) {
    test(`the restore steps disconnect an older non-reading client of ${listener}`, NEEDS_INSIGHT, async () => {
      await using agent = await startSocketAgent();
      const atFirst = sockets(agent);
      using older = await RawHttp2.dial(target(agent));
      older.call("Exec", agent.token, ENDLESS_OUTPUT, false);
      await stoppedAtData(older);
      using caller = await RawHttp2.dial(LISTENERS["the TCP port"](agent));
      assert.equal(await caller.ask("RunRestoreDuties", agent.token, DUTIES), "0");
      // The agent sends nothing more on a closed socket; bytes that the kernel had taken may still arrive.
      await hasNoMore(agent, atFirst);
      older.readOn();
      await older.ended();
    });
  }

  test("two concurrent restore calls are both answered", async () => {
    await using agent = await startSocketAgent();
    for (let round = 0; round < 10; round++) {
      using first = await RawHttp2.dial(LISTENERS["the TCP port"](agent), { windowBytes: WINDOW_BYTES });
      first.call("Exec", agent.token, ENDLESS_OUTPUT, false);
      await first.next(({ type }) => type === FRAME.data, "a message");
      // Its answer is ready soon, and waits for the window that the command's output has used up.
      const answer = first.status(first.call("RunRestoreDuties", agent.token, DUTIES));
      answer.catch(() => {});
      await until(() => dutiesDone(agent) === 2 * round + 1, "the first duties are done");
      using second = await RawHttp2.dial(LISTENERS["the TCP port"](agent));
      const other = second.ask("RunRestoreDuties", agent.token, DUTIES);
      first.send(frame(FRAME.windowUpdate, 0, 0, uint32(WINDOW_BYTES)));
      assert.equal(await other, "0");
      assert.equal((await answer).get("grpc-status"), "0");
    }
  });
});

function dutiesDone(agent: SocketAgent): number {
  return agent.log.filter(({ event }) => event === "restore_duties_done").length;
}

/** Resolves when the agent has no more sockets than before. */
function hasNoMore(agent: SocketAgent, before: number): Promise<void> {
  return until(
    () => sockets(agent) <= before,
    () => `the agent has no more sockets than ${before}: ${sockets(agent)}`,
  );
}
