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
});
