import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { AgentError, Allowance, type AllowanceOptions, type Share } from "../../../src/agent/domain/index.ts";
import { ManualTimers } from "../../fixtures/manual-timers.ts";

const MINUTE_MS = 60_000;

interface Rig {
  readonly allowance: Allowance;
  readonly lost: string[];
  readonly share: (name: string, owner?: object) => Share;
  /** Time passes, for shares that wait too. */
  readonly pass: (durationMs: number) => void;
  nowMs: number;
}

function rig(limits: Pick<AllowanceOptions, "limit" | "ownerLimit">): Rig {
  const lost: string[] = [];
  const all = {};
  const timers = new ManualTimers();
  const self: Rig = {
    nowMs: 0,
    lost,
    allowance: new Allowance({
      ...limits,
      timers,
      clock: { monotonicMs: () => self.nowMs },
      refusal: (because) => new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_FILE_CALLS", because),
    }),
    pass: (durationMs) => {
      for (const end = self.nowMs + durationMs; self.nowMs < end;) {
        self.nowMs += 1_000;
        timers.advance(1_000);
      }
    },
    share: (name, owner = all) => self.allowance.share(owner, () => lost.push(name)),
  };
  return self;
}

describe("an allowance", () => {
  it("refuses who asks for more while nobody has stood still for a minute", () => {
    const now = rig({ limit: 10 });
    now.share("a").set(6);
    const b = now.share("b");
    assert.throws(() => b.set(5), /stood still for a minute/);
    b.set(4);
    assert.throws(() => b.set(5), AgentError);
    now.nowMs = MINUTE_MS - 1;
    assert.throws(() => now.share("c").set(1), AgentError);
    assert.deepEqual(now.lost, []);
  });

  it("takes from who has stood still for longest, as many as it needs, and from nobody while there is enough", () => {
    const now = rig({ limit: 10 });
    const [a, b, c] = [now.share("a"), now.share("b"), now.share("c")];
    a.set(4);
    b.set(4);
    c.set(2);
    now.nowMs = 10;
    a.progress();
    now.nowMs = 10 * MINUTE_MS;
    assert.deepEqual(now.lost, []);
    now.share("d").set(5);
    assert.deepEqual(now.lost, ["b", "c"]);
    now.share("e").set(1);
    assert.deepEqual(now.lost, ["b", "c", "a"].slice(0, 2), "what b and c gave up was enough");
  });

  it("does not give back to who lost it, whatever that one still says", () => {
    const now = rig({ limit: 1 });
    const [a, b] = [now.share("a"), now.share("b")];
    a.set(1);
    now.nowMs = MINUTE_MS;
    b.set(1);
    a.progress();
    a.set(1);
    a.set(0);
    assert.deepEqual(now.lost, ["a"]);
    assert.throws(() => now.share("c").set(1), AgentError);
    b.set(0);
    now.share("c").set(1);
  });

  it("makes room for an owner over its own limit among its own", () => {
    const now = rig({ limit: 10, ownerLimit: 2 });
    const [one, other] = [{}, {}];
    now.share("other", other).set(1);
    now.share("a", one).set(1);
    now.share("b", one).set(1);
    assert.throws(() => now.share("c", one).set(1), AgentError);
    now.nowMs = MINUTE_MS;
    now.share("c", one).set(1);
    assert.deepEqual(now.lost, ["a"]);
  });

  it("never takes from who asks", () => {
    const now = rig({ limit: 2 });
    const a = now.share("a");
    a.set(2);
    now.nowMs = MINUTE_MS;
    assert.throws(() => a.set(3), AgentError);
    assert.deepEqual(now.lost, []);
  });

  it("lets those that wait have their turn in order, also a small one behind a large one", () => {
    const now = rig({ limit: 10 });
    const holder = now.share("holder");
    holder.set(8);
    const reached: string[] = [];
    const reach = (name: string, amount: number): (() => void) =>
      now.share(name).reach(
        () => amount,
        () => reached.push(name),
      );
    reach("fits", 2);
    reach("large", 6);
    const leave = reach("leaves", 1);
    reach("small", 1);
    assert.deepEqual(reached, ["fits"]);
    holder.set(5);
    assert.deepEqual(reached, ["fits"], "the large one is first and does not fit");
    leave();
    holder.set(1);
    assert.deepEqual(reached, ["fits", "large", "small"]);
    assert.throws(() => now.share("next").set(1), AgentError, "all is used");
  });

  it("takes for one that waits from who stands still for a minute, but not from who waits itself", () => {
    const now = rig({ limit: 10 });
    const [still, busy, waits] = [now.share("still"), now.share("busy"), now.share("waits")];
    waits.set(2);
    still.set(4);
    busy.set(4);
    let got = 0;
    waits.reach(
      () => 6,
      () => (got += 1),
    );
    now.pass(30_000);
    busy.progress();
    now.pass(29_000);
    assert.deepEqual([now.lost, got], [[], 0]);
    now.pass(2_000);
    assert.deepEqual([now.lost, got], [["still"], 1]);
  });

  it("refuses who waits for a minute in which nobody stands still and nobody gets anything", () => {
    const now = rig({ limit: 10 });
    const busy = now.share("busy");
    busy.set(10);
    const [first, second] = [now.share("first"), now.share("second")];
    const reached: string[] = [];
    for (const share of [first, second])
      share.reach(
        () => 1,
        () => reached.push(share === first ? "first" : "second"),
      );
    const pass = (seconds: number): void => {
      for (let passed = 0; passed < seconds; passed++) {
        now.pass(1_000);
        busy.progress();
        first.progress();
      }
    };
    pass(30);
    busy.set(9);
    assert.deepEqual(reached, ["first"]);
    pass(59);
    assert.deepEqual(now.lost, [], "a minute from the last turn");
    pass(1);
    assert.deepEqual([now.lost, reached], [["second"], ["first"]]);
  });
});
