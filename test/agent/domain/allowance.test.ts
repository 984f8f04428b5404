import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { AgentError, Allowance, type AllowanceOptions, type Share } from "../../../src/agent/domain/index.ts";

const MINUTE_MS = 60_000;

interface Rig {
  readonly allowance: Allowance;
  readonly lost: string[];
  readonly share: (name: string, owner?: object) => Share;
  nowMs: number;
}

function rig(limits: Pick<AllowanceOptions, "limit" | "ownerLimit">): Rig {
  const lost: string[] = [];
  const all = {};
  const self: Rig = {
    nowMs: 0,
    lost,
    allowance: new Allowance({
      ...limits,
      clock: { monotonicMs: () => self.nowMs },
      refusal: (because) => new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_FILE_CALLS", because),
    }),
    share: (name, owner = all) => self.allowance.share(owner, () => lost.push(name)),
  };
  return self;
}

describe("an allowance", () => {
  it("refuses who asks for more while nobody has stood still for a minute", () => {
    const now = rig({ limit: 10 });
    now.share("a").set(6);
    const b = now.share("b");
    assert.throws(() => b.set(5), /has been idle for a minute/);
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
});
