import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { setTimeout } from "node:timers/promises";
import { ActivityClock, Stamps } from "../../../src/agent/domain/index.ts";
import { IdleDeclarations } from "../../../src/agent/workload-service/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { Health } from "../../../src/agent/health/index.ts";
import { Restore } from "../../../src/agent/restore/index.ts";
import { healthFrame } from "../../../src/agent/rpc/handlers/health.ts";
import { serveRestoreDuties } from "../../../src/agent/rpc/handlers/restore.ts";
import type { Connection } from "../../../src/agent/listening/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { issueCertificates } from "../../fixtures/certificates.ts";
import { ExecStream } from "../../fixtures/exec-stream.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { startManagement, TEST_TOKEN } from "../../fixtures/management.ts";
import { processById } from "../../fixtures/proc.ts";
import { RecordingKernel, RecordingRandomness } from "../../fixtures/recording-kernel.ts";
import { recordingLog } from "../../fixtures/recording-log.ts";
import { SimulatedClock } from "../../fixtures/simulated-clock.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const ENTROPY = new Uint8Array(64).fill(7);

/** A guest over a real connection with a clock of the test: a machine's own cannot be stepped by an hour. */
async function guest(t: TestContext, wallMs = Date.now(), notBeforeMs = Date.now() - 30 * DAY_MS) {
  const clock = new SimulatedClock(wallMs);
  const stamps = new Stamps(clock);
  const activity = new ActivityClock(stamps);
  const idle = new IdleDeclarations(stamps);
  const kernel = new RecordingKernel();
  const freeze = { frozen: false, thawedWithoutDuties: false };
  const readiness = () => ({ ready: true, exitCode: 0 });
  const health = new Health({ readiness, activity, idle, clock, freeze, environment: { version: 1 } });
  const restore = new Restore<Connection>({
    kernel: Object.assign(kernel, {
      stepClock: (ns: bigint) => {
        clock.set(ns);
        return undefined;
      },
    }),
    randomness: new RecordingRandomness(),
    clock,
    stamps,
    activity,
    log: recordingLog(),
    renew: {
      sweepHooks: () => Promise.resolve(),
      renewFiles: () => Promise.resolve({ credentials: true, environment: true }),
      dropOtherConnections: () => 0,
      thaw: () => ({ frozen: false, thawedWithoutDuties: false }),
      rearmTimers: () => {},
    },
  });
  const issued = await issueCertificates();
  const client = await issued.issueClient({
    notBefore: new Date(notBeforeMs),
    notAfter: new Date(Date.now() + 30 * DAY_MS),
  });
  const certificates = { ...issued, client };
  const server = await startManagement(
    (router) => {
      router.unary(GuestAgent.method.health, () => healthFrame(health.report(), []));
      router.unary(GuestAgent.method.runRestoreDuties, (request, call) => serveRestoreDuties(restore, request, call));
    },
    { clock, certificates },
  );
  t.after(() => server[Symbol.asyncDispose]());
  const caller = clientOf({ port: server.port, certificates, token: TEST_TOKEN });
  t.after(() => caller.close());
  return {
    clock,
    activity,
    idle,
    /** The duties at this time of the host. Returns what they reported about the clock. */
    duties: async (hostMs: number) => {
      const { clockStepped, degraded, clockDriftMs } = await caller.runRestoreDuties({
        entropy: ENTROPY,
        hostTime: new Date(hostMs),
      });
      return { clockStepped, degraded, driftMs: clockDriftMs };
    },
    /** Milliseconds since the last activity and the declaration, by Health. */
    ago: async () => {
      const { guestTime, lastUserActivity, idleDeclared } = await caller.health();
      return { active: ms(guestTime) - ms(lastUserActivity), idle: ms(guestTime) - ms(idleDeclared) };
    },
  };
}

function ms(time: Date | undefined): number {
  return time === undefined ? Number.NaN : time.getTime();
}

describe("what Health tells of the past after restore duties", () => {
  for (const [name, aheadMs] of [
    ["an hour ahead", HOUR_MS],
    ["a day ahead", DAY_MS],
  ] as const) {
    it(`is as long ago as it was, when the guest's clock was ${name}`, async (t) => {
      const hostMs = Date.now();
      const { clock, activity, idle, duties, ago } = await guest(t, hostMs + aheadMs);
      idle.declare();
      clock.pass(4_000);
      activity.touch();
      clock.pass(6_000);
      assert.deepEqual(await duties(hostMs + 10_000), { clockStepped: true, degraded: "", driftMs: aheadMs });
      assert.deepEqual(await ago(), { active: 6_000, idle: 10_000 });
      clock.pass(1_000);
      assert.deepEqual(await ago(), { active: 7_000, idle: 11_000 });
    });
  }

  for (const [name, behindMs] of [
    ["an hour", HOUR_MS],
    ["a day", DAY_MS],
  ] as const) {
    it(`is longer ago by the pause, when the guest was away for ${name}`, async (t) => {
      const snapshotMs = Date.now() - 2 * DAY_MS;
      const { clock, activity, idle, duties, ago } = await guest(t, snapshotMs);
      activity.touch();
      clock.pass(1_000);
      idle.declare();
      assert.equal((await duties(snapshotMs + 1_000 + behindMs)).driftMs, -behindMs);
      assert.deepEqual(await ago(), { active: behindMs + 1_000, idle: behindMs });
    });
  }

  it("keeps its order over two restores in a row, one from behind and one from ahead", async (t) => {
    const hostMs = Date.now();
    const { clock, activity, idle, duties, ago } = await guest(t, hostMs - DAY_MS);
    idle.declare();
    clock.pass(1_000);
    activity.touch();
    await duties(hostMs);
    assert.deepEqual(await ago(), { active: DAY_MS - 1_000, idle: DAY_MS });
    clock.step(HOUR_MS);
    assert.deepEqual(await duties(hostMs + 1_000), { clockStepped: true, degraded: "", driftMs: HOUR_MS - 1_000 });
    const { active, idle: declared } = await ago();
    assert.equal(declared - active, 1_000);
    assert.ok(active >= DAY_MS - 1_000);
  });

  it("is seconds ago, not years, in a guest whose clock had never been set", async (t) => {
    for (const [wallMs, notBeforeMs] of [
      [60_000, Date.now() - DAY_MS],
      [60_000, 0],
      [Date.now() - 2 * DAY_MS, Date.now() - DAY_MS],
    ] as const) {
      const { clock, activity, idle, duties, ago } = await guest(t, wallMs, notBeforeMs);
      idle.declare();
      clock.pass(2_000);
      activity.touch();
      clock.pass(3_000);
      await duties(Date.now());
      assert.deepEqual(await ago(), { active: 3_000, idle: 5_000 });
    }
  });
});

describe("one wrong time of the host", () => {
  it("is put right by the next call, and only a call that was late or repeated is stale", async (t) => {
    const hostMs = Date.now();
    const { clock, duties } = await guest(t, hostMs);
    assert.equal((await duties(hostMs + DAY_MS)).clockStepped, true);
    assert.deepEqual(await duties(hostMs), { clockStepped: true, degraded: "", driftMs: DAY_MS });
    assert.equal(clock.wallNs(), BigInt(hostMs) * 1_000_000n);
    for (const lateMs of [0, 1, 60_000]) {
      assert.deepEqual(await duties(hostMs - lateMs), {
        clockStepped: false,
        degraded: "clock_stale",
        driftMs: lateMs,
      });
    }
    assert.equal((await duties(hostMs - 60_001)).clockStepped, true);
  });
});

describe("commands that the duties end", () => {
  it("are no user activity, however long they take to die", async () => {
    await using agent = await startAgent();
    using stream = new ExecStream(agent);
    stream.start({ args: ["sh", "-c", "trap '' HUP; echo $$; exec sleep 1000"] });
    const pid = Number(await stream.until("\n"));
    using terminal = new ExecStream(agent);
    terminal.start({ args: ["cat"], terminal: {} });
    await terminal.next();
    using caller = clientOf(agent);
    const asked = ms((await caller.health()).guestTime);
    await caller.runRestoreDuties({ entropy: ENTROPY });
    const answered = ms((await caller.health()).guestTime);
    await Promise.all([assert.rejects(stream.outcome()), assert.rejects(terminal.outcome())]);
    let looksAfterwards = 20;
    while (looksAfterwards > 0) {
      const { lastUserActivity } = await caller.health();
      assert.ok(ms(lastUserActivity) >= asked && ms(lastUserActivity) <= answered);
      if (processById(pid) === undefined) looksAfterwards--;
      else await setTimeout(50);
    }
  });
});
