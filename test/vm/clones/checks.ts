import assert from "node:assert/strict";
import { clockTolerance } from "../harness/oracle.ts";
import type { Clone, Pair } from "./clone.ts";
import { shareNumbers } from "./draws.ts";
import { DAEMON_MARK, EXEC_MARK, HOOK_MARK } from "./source.ts";

/** Something that must hold for two clones. */
interface CloneCheck {
  readonly title: string;
  /** Throws AssertionError. */
  readonly check: (pair: Pair) => void;
}

const OK = "0";

function ofEach(check: (clone: Clone) => void): (pair: Pair) => void {
  return (pair) => {
    for (const clone of pair) check(clone);
  };
}

/** The numbers drawn by the POST_RESTORE hook. */
function hookNumbers({ hook }: Clone): string[] {
  return hook.output.split("\n").slice(1).filter(Boolean);
}

function near(actual: number, expected: number, tolerance: number, what: string): void {
  assert.ok(Math.abs(actual - expected) < tolerance, `${what}: ${actual}, expected ${expected} ± ${tolerance}`);
}

/** What must hold for two clones. */
export const CLONE_CHECKS: readonly CloneCheck[] = [
  {
    title: "getrandom gives clones different numbers after the restore steps",
    check: ([one, other]) => assert.equal(shareNumbers(one.after.kernel, other.after.kernel), false),
  },
  {
    title: "the vDSO's getrandom gives clones different numbers after the restore steps",
    check: ([one, other]) => assert.equal(shareNumbers(one.after.vdso, other.after.vdso), false),
  },
  {
    title: "clones' agents have different TLS randoms and key shares after the restore steps",
    check: ([one, other]) => {
      assert.notEqual(one.after.tlsRandom, other.after.tlsRandom);
      assert.notEqual(one.after.tlsKeyShare, other.after.tlsKeyShare);
    },
  },
  {
    title: "clones give different ids to kept commands after the restore steps",
    check: ([one, other]) => assert.notEqual(one.after.execId, other.after.execId),
  },
  {
    title: "restore steps mix in and credit the entropy without degradation",
    check: ofEach(({ duties }) => {
      assert.equal(duties.entropyBytesMixed, 64);
      assert.equal(duties.entropyCredited, true);
      assert.equal(duties.clockStepped, true);
      assert.equal(duties.degraded, "");
    }),
  },
  {
    title: "restore steps report the clock's drift before the step",
    check: ofEach(({ duties, dutiesTookMs, driftBeforeMs }) => {
      assert.ok(driftBeforeMs < -3_000, `a guest that was paused is behind: ${driftBeforeMs} ms`);
      near(duties.clockDriftMs, driftBeforeMs, clockTolerance(dutiesTookMs), "clock_drift_ms");
    }),
  },
  {
    title: "the clock is right after the restore steps, within 100 ms",
    check: ofEach(({ dutiesTookMs, driftAfterMs }) =>
      near(driftAfterMs, 0, clockTolerance(dutiesTookMs), "drift after the duties"),
    ),
  },
  {
    title: "the POST_RESTORE hook sees the stepped clock",
    check: ofEach(({ hook }) => {
      const seconds = Number(hook.output.split("\n")[0]);
      assert.ok(seconds >= Math.floor(hook.startedMs / 1000) - 1, `${seconds} s, started at ${hook.startedMs} ms`);
      assert.ok(seconds <= Math.ceil(hook.endedMs / 1000) + 1, `${seconds} s, ended at ${hook.endedMs} ms`);
    }),
  },
  {
    title: "the POST_RESTORE hooks of two clones draw different numbers",
    check: (pair) => {
      const [one, other] = [hookNumbers(pair[0]), hookNumbers(pair[1])];
      assert.deepEqual([one.length, other.length], [8, 8]);
      assert.equal(shareNumbers(one, other), false);
    },
  },
  {
    title: "with a stale clock a newer certificate is accepted and an expired one rejected",
    check: ofEach(({ duties, expiredSession }) => {
      assert.equal(duties.clockStepped, true);
      assert.equal(expiredSession, undefined);
    }),
  },
  {
    title: "restore steps close all older connections, half-open ones too",
    check: ofEach(({ olderSession, connections, console: text }) => {
      assert.deepEqual(olderSession, [OK, undefined]);
      assert.match(text, /not complete when the agent closed all connections after a restore/);
      assert.match(text, /"dropped_connections":[1-9]/);
      assert.equal(connections, 1, "none but that of the question is left, the one of before the snapshot included");
    }),
  },
  {
    title: "a hook that timed out before the snapshot does not run in clones",
    check: ofEach(({ processes }) => assert.doesNotMatch(processes, HOOK_MARK)),
  },
  {
    title: "a clone ends the old connection's command but not its daemon",
    check: ofEach(({ processes }) => {
      assert.doesNotMatch(processes, EXEC_MARK);
      assert.match(processes, DAEMON_MARK);
    }),
  },
];
