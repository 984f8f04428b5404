import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ActivityClock, Stamps } from "../../../src/agent/domain/index.ts";
import { IdleDeclarations } from "../../../src/agent/workload-service/index.ts";
import { SimulatedClock } from "../../fixtures/clocks.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

function setup(wallMs?: number) {
  const clock = new SimulatedClock(wallMs);
  const stamps = new Stamps(clock);
  const activity = new ActivityClock(stamps);
  const idle = new IdleDeclarations(stamps);
  /** Milliseconds since a time of the guest's clock. */
  const agoMs = (ns = 0n): number => Number(clock.wallNs() - ns) / 1e6;
  const ago = { activeAgoMs: () => agoMs(activity.lastNs()), idleAgoMs: () => agoMs(idle.lastNs()) };
  return { clock, stamps, activity, idle, ...ago };
}

describe("the end of a cut attachment does not update last_user_activity", () => {
  it("cut() ends an attachment's user activity; a later end() changes nothing", () => {
    const { clock, activity, activeAgoMs } = setup();
    const attachment = activity.attach();
    activity.touch();
    clock.pass(2_000);
    attachment.cut();
    clock.pass(5_000);
    attachment.end();
    assert.equal(activeAgoMs(), 5_000);
    const other = activity.attach();
    activity.touch();
    other.end();
    clock.pass(1_000);
    activity.touch();
    clock.pass(2_000);
    assert.equal(activeAgoMs(), 2_000);
  });

  it("cut() records user activity only for an attachment begun after the restore", () => {
    const { clock, activity, activeAgoMs } = setup();
    const attachment = activity.attach();
    clock.pass(2_000);
    activity.restored();
    clock.step(5 * HOUR_MS);
    attachment.cut();
    assert.equal(activeAgoMs(), 5 * HOUR_MS);
    const other = activity.attach();
    activity.restored();
    clock.pass(1_000);
    activity.touch();
    clock.pass(2_000);
    other.cut();
    assert.equal(activeAgoMs(), 2_000);
    const later = activity.attach();
    clock.pass(1_000);
    later.cut();
    assert.equal(activeAgoMs(), 0, "what was attached after them counts");
  });
});

describe("a clock that is stepped", () => {
  for (const [name, byMs] of [
    ["an hour", HOUR_MS],
    ["a day", DAY_MS],
    ["a little", 5],
  ] as const) {
    it(`all timestamps shift once when the clock is stepped back by ${name}`, () => {
      const { clock, activity, idle, activeAgoMs, idleAgoMs } = setup();
      idle.declare();
      clock.pass(3_000);
      activity.touch();
      clock.pass(7_000);
      clock.step(-byMs);
      for (let look = 0; look < 3; look++) assert.deepEqual([activeAgoMs(), idleAgoMs()], [7_000, 10_000]);
      clock.pass(1_000);
      assert.deepEqual([activeAgoMs(), idleAgoMs()], [8_000, 11_000]);
    });
  }

  it("activity timestamps stay unchanged when the clock is stepped forward", () => {
    const { clock, idle, activeAgoMs, idleAgoMs } = setup();
    idle.declare();
    clock.step(5 * HOUR_MS);
    assert.deepEqual([activeAgoMs(), idleAgoMs()], [5 * HOUR_MS, 5 * HOUR_MS]);
    clock.step(-5 * HOUR_MS);
    assert.deepEqual([activeAgoMs(), idleAgoMs()], [5 * HOUR_MS, 5 * HOUR_MS], "a reported pause stays reported");
  });

  it("after the clock steps back half a millisecond, no activity timestamp is in the future", () => {
    const { clock, activity, activeAgoMs } = setup();
    clock.step(-0.5);
    assert.equal(activeAgoMs(), 0);
    activity.touch();
    assert.equal(activity.lastNs(), clock.wallNs());
  });

  it("a delay between wall-clock and monotonic readings does not shift activity timestamps", () => {
    const clock = new SimulatedClock();
    let heldUpMs = 0;
    const stamps = new Stamps({
      monotonicMs: () => clock.monotonicMs(),
      wallNs: () => {
        clock.pass(heldUpMs);
        return clock.wallNs();
      },
    });
    const activity = new ActivityClock(stamps);
    heldUpMs = 50;
    activity.touch();
    heldUpMs = 0;
    const touchedNs = activity.lastNs();
    clock.pass(1_000);
    assert.equal(activity.lastNs(), touchedNs);
  });
});

describe("a clock that had never been set", () => {
  it("only the first setting of a clock shifts the activity timestamps", () => {
    for (const [setSinceMs, agoMs] of [
      [1_700_000_000_000, 2_000],
      [1_000, 1_800_000_000_000 - 3_000],
      [undefined, 1_800_000_000_000 - 3_000],
    ] as const) {
      const { clock, stamps, activeAgoMs } = setup(3_000);
      clock.pass(2_000);
      const setSinceNs = setSinceMs === undefined ? undefined : BigInt(setSinceMs) * 1_000_000n;
      stamps.whileStepping(() => clock.set(1_800_000_000_000n * 1_000_000n), setSinceNs);
      assert.equal(activeAgoMs(), agoMs, String(setSinceMs));
    }
  });
});
