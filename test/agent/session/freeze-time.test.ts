import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type FreezeProblem, type SessionGroup, SessionClock } from "../../../src/agent/domain/index.ts";
import { SessionFreeze } from "../../../src/agent/session/index.ts";
import { ManualTimers } from "../../fixtures/clocks.ts";
import { recordingLog } from "../../fixtures/recorders.ts";

/** A session on a clock that the test moves; `jumpMs` is what a resume adds to it. */
function setup() {
  const timers = new ManualTimers();
  let nowMs = 0;
  let jumpMs = 0;
  const clock = { monotonicMs: () => nowMs + jumpMs };
  const state: { frozen: boolean; mayThaw: boolean; late?: FreezeProblem } = { frozen: false, mayThaw: true };
  const group: SessionGroup = {
    freeze: () => void (state.frozen = true),
    stopped: () => Promise.resolve(undefined),
    recheck: () => state.late,
    size: () => 1,
    thaw: () => {
      if (state.mayThaw) state.frozen = false;
      return state.mayThaw;
    },
  };
  const sessionClock = new SessionClock(clock, timers);
  const freeze = new SessionFreeze({ group, sessionClock, timers, clock, log: recordingLog() });
  return {
    state,
    sessionClock,
    freeze,
    begin: (freezeMs: number) =>
      freeze.freeze({ freezeMs, signal: new AbortController().signal, prepare: () => Promise.resolve() }),
    pass: (ms: number) => {
      for (let leftMs = ms; leftMs > 0; leftMs -= 10) {
        nowMs += 10;
        timers.advance(10);
      }
    },
    jump: (ms: number) => void (jumpMs += ms),
  };
}

describe("the time until a frozen session thaws without duties", () => {
  it("does not count what the clock jumps by when the guest is resumed", async () => {
    const { begin, pass, jump, freeze, state } = setup();
    assert.equal((await begin(10_000)).frozen, true);
    pass(5_000);
    jump(3_600_000);
    pass(4_500);
    assert.equal(state.frozen, true, "of the hour 200 ms count");
    assert.throws(() => freeze.check(), { reason: "SESSION_FROZEN" });
    pass(1_000);
    assert.deepEqual([state.frozen, freeze.frozen, freeze.thawedWithoutDuties], [false, false, true]);
    freeze.check();
    assert.deepEqual(freeze.thawByDuties(), { frozen: false, thawedWithoutDuties: true });
    assert.deepEqual(freeze.thawByDuties(), { frozen: false, thawedWithoutDuties: false });
  });

  it("goes on being over while the kernel refuses to thaw it, and the duties say that it is still frozen", async () => {
    const { begin, pass, freeze, state } = setup();
    await begin(1_000);
    state.mayThaw = false;
    pass(2_000);
    assert.deepEqual([freeze.thawByDuties().frozen, freeze.frozen], [true, true]);
    state.mayThaw = true;
    pass(200);
    assert.deepEqual([state.frozen, freeze.frozen, freeze.thawedWithoutDuties], [false, false, true]);
  });

  it("is over at once where a look after it finds one that ran: it is thawed, and no freeze was told", async () => {
    const { begin, freeze, state } = setup();
    state.late = "processes_outside:7(late)";
    const { frozen, problem } = await begin(10_000);
    assert.deepEqual([frozen, problem, state.frozen, freeze.frozen], [false, state.late, false, false]);
    assert.equal(freeze.thawedWithoutDuties, false);
    state.mayThaw = false;
    assert.equal((await begin(10_000)).frozen, false);
    assert.equal(freeze.frozen, true, "the kernel refused to thaw it");
  });

  it("is not begun by an agent that leaves, and is cut short by its leaving", async () => {
    const leaving = setup();
    leaving.freeze.leave();
    assert.equal((await leaving.begin(1_000)).problem, "leaving");
    const frozen = setup();
    await frozen.begin(1_000);
    frozen.freeze.leave();
    assert.equal(frozen.state.frozen, false);
  });
});

describe("a freeze that waits for a command which is being started", () => {
  it("has ended ready_cmd before, and prepares the memory afterwards, last of all before it stops the session", async () => {
    const { freeze, state } = setup();
    const events: string[] = [];
    const started = Promise.withResolvers<void>();
    freeze.pauseWhileFrozen({
      pause: async () => void events.push("ready_cmd"),
      runNow: () => events.push("ready_cmd again"),
    });
    const start = freeze.admit(() => started.promise).then(() => events.push("started"));
    const prepare = async (): Promise<void> => void events.push(`memory, ${state.frozen ? "stopped" : "running"}`);
    const freezing = freeze.freeze({ freezeMs: 10_000, signal: new AbortController().signal, prepare });
    // Everything that can run has run, and it still waits.
    await new Promise(setImmediate);
    assert.deepEqual(events, ["ready_cmd"]);
    started.resolve();
    await start;
    assert.equal((await freezing).frozen, true);
    assert.deepEqual(events, ["ready_cmd", "started", "memory, running"]);
  });

  it("is given up at a signal that asks the session to end, which it would not hear of", async () => {
    const { begin, freeze, state } = setup();
    const started = Promise.withResolvers<void>();
    const start = freeze.admit(() => started.promise);
    const freezing = begin(10_000);
    assert.throws(() => freeze.check(), { reason: "SESSION_FROZEN" });
    freeze.endAskedFor();
    freeze.check();
    started.resolve();
    await start;
    assert.deepEqual(await freezing, {
      frozen: false,
      processes: 0,
      pending: undefined,
      problem: "thawed_meanwhile",
    });
    assert.deepEqual([state.frozen, freeze.frozen], [false, false]);
    assert.equal((await begin(10_000)).frozen, true);
  });
});

describe("a timer of the session", () => {
  it("stands still while the session is frozen, also one that is set meanwhile", async () => {
    const { begin, pass, jump, freeze, sessionClock } = setup();
    const due: string[] = [];
    sessionClock.after(1_000, () => due.push("before"));
    const cancel = sessionClock.after(1_000, () => due.push("cancelled"));
    pass(600);
    await begin(60_000);
    sessionClock.after(100, () => due.push("meanwhile"));
    pass(5_000);
    jump(3_600_000);
    cancel();
    assert.deepEqual(due, []);
    freeze.thawByDuties();
    pass(100);
    assert.deepEqual(due, ["meanwhile"]);
    pass(300);
    assert.deepEqual(due, ["meanwhile", "before"]);
  });

  it("whose callback was lost to a bug does its work with the next one's", () => {
    const timers: (() => void)[] = [];
    let nowMs = 0;
    const sessionClock = new SessionClock(
      { monotonicMs: () => nowMs },
      { after: (_delayMs, run) => (timers.push(run), () => {}) },
    );
    const done: string[] = [];
    for (const [name, delayMs] of [
      ["lost", 10],
      ["next", 20],
      ["later", 30],
    ] as const) {
      sessionClock.after(delayMs, () => done.push(name));
    }
    nowMs = 20;
    timers[1]?.();
    assert.deepEqual(done, ["lost", "next"]);
    timers[0]?.();
    assert.deepEqual(done, ["lost", "next"]);
  });
});
