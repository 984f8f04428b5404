import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it } from "node:test";
import { ActivityClock, type Incoming, KILL_WAIT_MS, Stamps } from "../../../src/agent/domain/index.ts";
import type { CommandInput } from "../../../src/agent/exec/index.ts";
import { InputPump } from "../../../src/agent/exec/input-pump.ts";
import { Collector, processes, request } from "../../fixtures/spawning.ts";
import { systemClock } from "../../fixtures/clocks.ts";

/** A pipe takes 256 KiB at most; the rest waits in the agent. */
const PIPE_BYTES = 256 * 1024;
const KEYS = 300_000;

describe("input that a command does not read", () => {
  it("one-byte input frames wait until the command reads, and then all arrive", async () => {
    const child = await processes.spawn(
      request(["/bin/sh", "-c", "kill -STOP $$; exec wc -c"], { stdio: { kind: "pipes", stdin: true } }),
    );
    const output = new Collector();
    child.stdout?.start(output);
    child.stderr?.start(new Collector());
    let taken = 0;
    const stalled = new EventTarget();
    const pumped = Promise.withResolvers<void>();
    const keys: Incoming<CommandInput> = (take, over) => {
      const rest = async (): Promise<void> => {
        for (; taken < KEYS; taken++) {
          // A client that is not asked for its next frame by the next tick of the event loop is held back.
          const asked = setImmediate(() => stalled.dispatchEvent(new Event("stalled")));
          await take({ kind: "stdin", bytes: Buffer.from("x"), release: () => {} });
          clearImmediate(asked);
        }
        over(undefined);
        pumped.resolve();
      };
      void rest();
    };
    try {
      const waiting = once(stalled, "stalled");
      new InputPump(child, new ActivityClock(new Stamps(systemClock))).pump(keys, pumped.reject);
      await waiting;
      assert.ok(taken >= 500 && taken <= PIPE_BYTES + 2_000, `${taken} frames were taken`);
      child.signalGroup(18);
      await pumped.promise;
      assert.equal((await child.ended).signal, 0);
      assert.equal(await child.stdout?.drain(), true);
      assert.equal(output.text.trim(), String(KEYS));
    } finally {
      await child.tree.killWithin(KILL_WAIT_MS);
      child.release();
    }
  });
});
