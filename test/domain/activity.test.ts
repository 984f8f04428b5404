import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ActivityClock, type Clock, IdleDeclarations } from "../../src/domain/index.ts";

class SteppedClock implements Clock {
  nowNs = 1_000n;

  wallNs(): bigint {
    return this.nowNs;
  }

  monotonicMs(): number {
    return 0;
  }
}

describe("last_user_activity", () => {
  it("starts as the agent's start", () => {
    const clock = new SteppedClock();
    const activity = new ActivityClock(clock);
    clock.nowNs = 2_000n;
    assert.equal(activity.lastNs(), 1_000n);
  });

  it("is the time of the last touch", () => {
    const clock = new SteppedClock();
    const activity = new ActivityClock(clock);
    clock.nowNs = 2_000n;
    activity.touch();
    clock.nowNs = 3_000n;
    assert.equal(activity.lastNs(), 2_000n);
  });

  it("is now while something is attached, and the time of the last detachment afterwards", () => {
    const clock = new SteppedClock();
    const activity = new ActivityClock(clock);
    const detachFirst = activity.attach();
    const detachSecond = activity.attach();
    clock.nowNs = 2_000n;
    detachFirst();
    detachFirst();
    clock.nowNs = 3_000n;
    assert.equal(activity.lastNs(), 3_000n);
    detachSecond();
    clock.nowNs = 4_000n;
    assert.equal(activity.lastNs(), 3_000n);
  });

  it("is never in the future after the clock was stepped back", () => {
    const clock = new SteppedClock();
    const activity = new ActivityClock(clock);
    clock.nowNs = 500n;
    assert.equal(activity.lastNs(), 500n);
  });

  it("keeps its time after the clock was stepped forward", () => {
    const clock = new SteppedClock();
    const activity = new ActivityClock(clock);
    clock.nowNs = 9_000_000n;
    assert.equal(activity.lastNs(), 1_000n);
  });
});

describe("idle_declared", () => {
  it("is absent before the first declaration and its time afterwards", () => {
    const clock = new SteppedClock();
    const idle = new IdleDeclarations(clock);
    assert.equal(idle.lastNs(), undefined);
    clock.nowNs = 2_000n;
    assert.equal(idle.declare(), 2_000n);
    clock.nowNs = 3_000n;
    assert.equal(idle.lastNs(), 2_000n);
    assert.equal(idle.declare(), 3_000n);
    assert.equal(idle.lastNs(), 3_000n);
  });
});
