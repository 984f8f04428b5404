import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { HookKind } from "../../src/gen/svc/guest/v1alpha1/hooks_pb.ts";
import type { RestoreDutiesResponse } from "../../src/gen/svc/guest/v1alpha1/restore_pb.ts";
import { Guest, reachable } from "./harness/guest.ts";
import type { Machine } from "./harness/machine.ts";
import { ask } from "./harness/oracle.ts";
import { serverHello } from "./harness/server-hello.ts";

/** Snapshots that are tried until two clones are the same: the kernel's own reseed may fall into the gap. */
const MOST_SNAPSHOTS = 5;
/** Generous, because host and guest share two processors with whatever else runs. */
const CLOCK_TOLERANCE_MS = 1_000;
const HOOKS = {
  preSnapshot: { args: ["/bin/busybox", "sleep", "4242"] },
  postRestore: { args: ["/bin/busybox", "sh", "-c", "busybox date +%s; busybox od -An -tx1 -N16 /dev/urandom"] },
};

/** What a clone drew, by source. */
type Draws = Readonly<Record<string, string>>;

interface Restored {
  readonly before: Draws;
  readonly after: Draws;
  readonly duties: RestoreDutiesResponse;
  readonly driftBeforeMs: number;
  readonly driftAfterMs: number;
  readonly hookOutput: string;
  readonly processes: string;
  readonly console: string;
}

/** The kernel first: every other request makes it draw as well. */
async function drawAll(machine: Machine): Promise<Draws> {
  const [random = "", vdso = ""] = await ask(machine.oraclePort, ["random", "vdso"]);
  const hello = await serverHello(machine.agentPort);
  return { random, ...(vdso !== "none" && { vdso }), tlsRandom: hello.random, tlsKeyShare: hello.keyShare };
}

async function driftMs(machine: Machine): Promise<number> {
  const [clocks = ""] = await ask(machine.oraclePort, ["clocks"]);
  return Number(BigInt(clocks.split(" ")[0] ?? "") / 1_000_000n) - Date.now();
}

async function restore(guest: Guest, snapshot: string): Promise<Restored> {
  await using machine = await guest.start(snapshot);
  const before = await drawAll(machine);
  using client = guest.client(machine);
  const driftBeforeMs = await driftMs(machine);
  await reachable(client);
  const duties = await client.runRestoreDuties({ entropy: randomBytes(64), hostTime: timestampFromMs(Date.now()) });
  const driftAfterMs = await driftMs(machine);
  const after = await drawAll(machine);
  const hook = await client.runHook({ kind: HookKind.POST_RESTORE, timeoutMs: 30_000 });
  const ps = await client.run({ args: ["/bin/busybox", "ps"] });
  return {
    before,
    after,
    duties,
    driftBeforeMs,
    driftAfterMs,
    hookOutput: hook.stdoutTail,
    processes: ps.stdout.toString(),
    console: machine.console,
  };
}

async function twoClones(guest: Guest, source: Machine): Promise<readonly [Restored, Restored, number]> {
  for (let attempt = 1; ; attempt++) {
    const snapshot = await guest.snapshot(source, `snapshot-${attempt}`);
    const clones = [await restore(guest, snapshot), await restore(guest, snapshot)] as const;
    const same = JSON.stringify(clones[0].before) === JSON.stringify(clones[1].before);
    if (same || attempt === MOST_SNAPSHOTS) return [...clones, attempt];
    await source.resume();
  }
}

for (const kernel of ["6.12", "6.1"]) {
  test(`two clones of one Linux ${kernel} draw the same until the duties, and differ in every source after`, async (t) => {
    using guest = await Guest.prepare(t, { kernel, hooks: HOOKS });
    if (guest === undefined) return;
    await using source = await guest.boot();
    using old = guest.client(source);
    const quiesced = await old.runHook({ kind: HookKind.PRE_SNAPSHOT, timeoutMs: 500 });
    assert.equal(quiesced.timedOut, true);

    const [one, other, attempts] = await twoClones(guest, source);
    t.diagnostic(`${attempts} snapshot(s); drift ${one.driftBeforeMs} ms, after the duties ${one.driftAfterMs} ms`);
    assert.deepEqual(one.before, other.before, "control: without duties the clones are the same");
    for (const name of Object.keys(one.after)) assert.notEqual(one.after[name], other.after[name], name);
    assert.notEqual(one.hookOutput.split("\n")[1], other.hookOutput.split("\n")[1], "POST_RESTORE draws fresh numbers");

    for (const { duties, driftBeforeMs, driftAfterMs, hookOutput, processes, console: text } of [one, other]) {
      assert.equal(duties.entropyBytesMixed, 64);
      assert.equal(duties.entropyCredited, true);
      assert.equal(duties.clockStepped, true);
      assert.equal(duties.degraded, "");
      assert.ok(driftBeforeMs < 0, `a paused guest is behind: ${driftBeforeMs}`);
      assert.ok(Math.abs(Number(duties.clockDriftMs) - driftBeforeMs) < CLOCK_TOLERANCE_MS, `${duties.clockDriftMs}`);
      assert.ok(Math.abs(driftAfterMs) < CLOCK_TOLERANCE_MS, `${driftAfterMs}`);
      const hookSeconds = Number(hookOutput.split("\n")[0]);
      assert.ok(Math.abs(hookSeconds - Date.now() / 1000) < 300, "POST_RESTORE sees the stepped clock");
      assert.doesNotMatch(processes, /sleep 4242/, "the hook that timed out is not in the clone");
      const [, dropped] = /"droppedSessions":(\d+)/.exec(text) ?? [];
      assert.ok(Number(dropped) >= 1, "the connection from before the snapshot is ended");
    }
  });
}
