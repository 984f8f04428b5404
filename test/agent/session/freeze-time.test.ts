import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type FreezeProblem, type SessionGroup, SessionClock } from "../../../src/agent/domain/index.ts";
import { SessionFreeze } from "../../../src/agent/session/index.ts";
import { ManualTimers } from "../../fixtures/clocks.ts";
import { recordingLog } from "../../fixtures/recorders.ts";

/** Duties that have gone well, and whose caller keeps nothing frozen. */
const DONE = { keep: false, specRefused: false };

/** A session on a clock that the test moves; `jumpMs` is what a resume adds to it. */
function setup() {
  const timers = new ManualTimers();
  let nowMs = 0;
  let jumpMs = 0;
  const clock = { monotonicMs: () => nowMs + jumpMs };
  const state: { frozen: boolean; mayThaw: boolean; late?: FreezeProblem } = { frozen: false, mayThaw: true };
  const ends: string[] = [];
  let mayKill = true;
  const group: SessionGroup = {
    freeze: () => void (state.frozen = true),
    stopped: () => Promise.resolve(undefined),
    recheck: () => state.late,
    size: () => 1,
    thaw: () => {
      if (state.mayThaw) state.frozen = false;
      ends.push("thawed");
      return state.mayThaw;
    },
    kill: () => {
      if (mayKill) ends.push(state.frozen ? "killed while frozen" : "killed");
      return mayKill;
    },
  };
  const sessionClock = new SessionClock(clock, timers);
  const log = recordingLog();
  const freeze = new SessionFreeze({ group, sessionClock, timers, clock, log });
  freeze.whenKilled(() => ends.push("reported"));
  return {
    state,
    ends,
    log,
    mayKill: (may: boolean) => void (mayKill = may),
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

describe("the expiry of a freeze", () => {
  it("a clock jump when the VM is resumed does not shorten the freeze", async () => {
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
    assert.deepEqual(freeze.thawByDuties(DONE), { frozen: false, thawedWithoutDuties: true });
    assert.deepEqual(freeze.thawByDuties(DONE), { frozen: false, thawedWithoutDuties: false });
  });

  it("after a freeze has expired, the thaw is retried until the kernel permits it", async () => {
    const { begin, pass, freeze, state } = setup();
    await begin(1_000);
    state.mayThaw = false;
    pass(2_000);
    assert.deepEqual([freeze.thawByDuties(DONE).frozen, freeze.frozen], [true, true]);
    state.mayThaw = true;
    pass(200);
    assert.deepEqual([state.frozen, freeze.frozen, freeze.thawedWithoutDuties], [false, false, true]);
  });

  it("if a final check finds a freeze incomplete, the freeze is undone and reported", async () => {
    const { begin, freeze, state } = setup();
    state.late = "processes_outside:7(late)";
    const { frozen, problem } = await begin(10_000);
    assert.deepEqual([frozen, problem, state.frozen, freeze.frozen], [false, state.late, false, false]);
    assert.equal(freeze.thawedWithoutDuties, false);
    state.mayThaw = false;
    assert.equal((await begin(10_000)).frozen, false);
    assert.equal(freeze.frozen, true, "the kernel refused to thaw it");
  });

  it("a stopping agent begins no freeze and thaws a frozen session", async () => {
    const leaving = setup();
    leaving.freeze.shutDown();
    assert.equal((await leaving.begin(1_000)).problem, "leaving");
    const frozen = setup();
    await frozen.begin(1_000);
    frozen.freeze.shutDown();
    assert.equal(frozen.state.frozen, false);
  });
});

describe("a session whose restore steps refused a spec after keep_frozen", () => {
  const KEPT = { keep: true, specRefused: false };
  const REFUSED = { keep: false, specRefused: true };
  const KILLED = ["killed while frozen", "thawed", "reported"];
  const events = ({ log }: ReturnType<typeof setup>) => log.lines.map(({ event }) => event);

  it("a refused spec keeps the session frozen without extending its freeze time", async () => {
    const { begin, pass, freeze, state, ends } = setup();
    await begin(10_000);
    assert.equal(freeze.thawByDuties(KEPT).frozen, true);
    pass(9_000);
    for (let time = 0; time < 2; time++) assert.equal(freeze.thawByDuties(REFUSED).frozen, true);
    assert.throws(() => freeze.check(), {
      reason: "SESSION_FROZEN",
      message: /will be killed in 1000 ms: replace the file/,
    });
    assert.equal(state.frozen, true);
    assert.deepEqual(freeze.thawByDuties(DONE), { frozen: false, thawedWithoutDuties: false });
    pass(20_000);
    assert.deepEqual([ends, freeze.frozen], [["thawed"], false]);
  });

  it("when the freeze expires, a session whose spec was refused is killed", async () => {
    const set = setup();
    await set.begin(1_000);
    set.freeze.thawByDuties({ keep: true, specRefused: true });
    set.pass(1_200);
    assert.deepEqual([set.ends, set.freeze.frozen, set.freeze.thawedWithoutDuties], [KILLED, false, false]);
    assert.ok(events(set).includes("freeze_expired"));
    assert.equal((await set.begin(1_000)).problem, "leaving", "nothing freezes it again");
  });

  it("a stopping agent kills a frozen session whose spec was refused", async () => {
    for (const end of ["thawForSignal", "shutDown"] as const) {
      const set = setup();
      await set.begin(10_000);
      set.freeze.thawByDuties(KEPT);
      set.freeze.thawByDuties(REFUSED);
      set.freeze[end]();
      assert.deepEqual(set.ends, KILLED);
      assert.ok(events(set).includes("frozen_session_killed"));
    }
  });

  it("after a freeze expires, killing the session is retried until it succeeds", async () => {
    const { begin, pass, freeze, ends, mayKill } = setup();
    await begin(1_000);
    freeze.thawByDuties({ keep: true, specRefused: true });
    mayKill(false);
    pass(2_000);
    assert.deepEqual([ends, freeze.frozen], [[], true]);
    mayKill(true);
    pass(200);
    assert.deepEqual(ends, KILLED);
  });

  it("when a freeze expires, the session is thawed unless its latest spec was refused", async () => {
    for (const duties of [[{ keep: true, specRefused: true }, KEPT], [KEPT], []]) {
      const { begin, pass, freeze, ends } = setup();
      await begin(1_000);
      for (const each of duties) freeze.thawByDuties(each);
      pass(1_200);
      assert.deepEqual([ends, freeze.thawedWithoutDuties], [["thawed"], true]);
    }
    const { begin, freeze } = setup();
    await begin(1_000);
    assert.equal(freeze.thawByDuties(REFUSED).frozen, false, "duties of a guest that is not a fork thaw it");
  });
});

describe("a freeze that waits for a starting command", () => {
  it("a freeze waits until commands have started, prepares memory, then stops processes", async () => {
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

  it("a termination signal cancels a freeze that waits for a starting command", async () => {
    const { begin, freeze, state } = setup();
    const started = Promise.withResolvers<void>();
    const start = freeze.admit(() => started.promise);
    const freezing = begin(10_000);
    assert.throws(() => freeze.check(), { reason: "SESSION_FROZEN" });
    freeze.thawForSignal();
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
  it("session timers pause while the session is frozen", async () => {
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
    freeze.thawByDuties(DONE);
    pass(100);
    assert.deepEqual(due, ["meanwhile"]);
    pass(300);
    assert.deepEqual(due, ["meanwhile", "before"]);
  });

  it("an overdue session timer fires together with the next timer", () => {
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
