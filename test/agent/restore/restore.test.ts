import assert from "node:assert/strict";
import { constants } from "node:os";
import { describe, it } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { ActivityClock, AgentError, ENTROPY_LIMIT_BYTES, Stamps } from "../../../src/agent/domain/index.ts";
import { RestoreDutiesRequestSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import {
  DutyQueue,
  rehearsedDuties,
  type RenewedParts,
  Restore,
  type RestoreCall,
  type RestoreParts,
} from "../../../src/agent/restore/index.ts";
import { serveRestoreDuties } from "../../../src/agent/rpc/handlers/restore.ts";
import { RecordingKernel, recordingLog, RecordingRandomness } from "../../fixtures/recorders.ts";
import { systemClock } from "../../fixtures/clocks.ts";
import { addon } from "../../fixtures/spawning.ts";

const { EINVAL } = constants.errno;
const HOST_NS = 1_800_000_000_000_000_000n;
const SECOND_NS = 1_000_000_000n;

/** The duties whose course a test decides. */
interface Course {
  readonly sweep?: () => Promise<void>;
  readonly renew?: RenewedParts<string>["rotation"]["renew"];
}

function setup({ sweep, renew }: Course = {}) {
  const kernel = new RecordingKernel();
  const randomness = new RecordingRandomness();
  /** Everything done beside the kernel's part, in order. */
  const events: string[] = [];
  const stamps = new Stamps(systemClock);
  const parts = {
    kernel,
    randomness,
    clock: systemClock,
    stamps,
    activity: new ActivityClock(stamps),
    log: recordingLog(),
    dutyQueue: new DutyQueue(),
    renew: {
      hooks: { killStaleHook: sweep ?? (async () => void events.push("hooks")) },
      rotation: {
        renew:
          renew ??
          (async () => {
            events.push("credentials");
            return { credentials: true, environment: true };
          }),
        resetRateLimits: () => {},
      },
      connections: {
        dropOtherConnections: (keep) => {
          events.push(`connections but ${keep}`);
          return 3;
        },
      },
      freeze: {
        frozen: false,
        thawByDuties: () => {
          events.push("thaw");
          return { frozen: false, thawedWithoutDuties: false };
        },
      },
      readiness: { runNow: () => void events.push("timers") },
    },
  } satisfies RestoreParts<string>;
  const restore = new Restore(parts);
  return { parts, restore, dutyQueue: parts.dutyQueue, kernel, randomness, events };
}

function call(connection = "ours", signal: AbortSignal = new AbortController().signal): RestoreCall<string> {
  const arrival = { wallNs: HOST_NS, monotonicMs: performance.now() };
  return { arrival, validity: undefined, connection, signal };
}

function request(hostTimeNs?: bigint, sizeBytes = 64) {
  return { entropy: new Uint8Array(sizeBytes).fill(0xaa), hostTimeNs };
}

describe("restore steps", () => {
  it("the restore steps run in the documented order", async () => {
    const { restore, kernel, randomness, events } = setup();
    const report = await restore.run(request(HOST_NS), call());
    assert.deepEqual(report, {
      entropyBytesMixed: 64,
      entropyCredited: true,
      clockDriftMs: 0n,
      clockStepped: true,
      degraded: [],
      frozen: false,
      thawedWithoutDuties: false,
    });
    assert.deepEqual(kernel.calls, ["open", "credit 64", "reseed", "close", "step"]);
    assert.equal(randomness.seeds.length, 1);
    assert.deepEqual(events, ["hooks", "credentials", "connections but ours", "thaw", "timers"]);
  });

  it("a restore call with missing or oversized entropy is rejected and changes nothing", async () => {
    for (const sizeBytes of [0, ENTROPY_LIMIT_BYTES + 1]) {
      const { restore, kernel, randomness, events } = setup();
      await assert.rejects(restore.run(request(HOST_NS, sizeBytes), call()), {
        name: "AgentError",
        status: "INVALID_ARGUMENT",
        metadata: { field: "entropy" },
      });
      assert.deepEqual([kernel.calls, randomness.seeds, events], [[], [], []]);
    }
  });

  it("the restore steps accept and wipe up to 64 KiB of entropy", async () => {
    const { restore, kernel } = setup();
    const given = request(undefined, ENTROPY_LIMIT_BYTES);
    assert.equal((await restore.run(given, call())).entropyBytesMixed, ENTROPY_LIMIT_BYTES);
    assert.ok(given.entropy.every((byte) => byte === 0));
    assert.ok(Buffer.concat(kernel.taken).every((byte) => byte === 0xaa));
  });

  it("a restore call's entropy is wiped even if the call is refused or cancelled", async () => {
    const gate = Promise.withResolvers<void>();
    const { restore } = setup({ sweep: () => gate.promise });
    const running = restore.run(request(), call());
    const gone = new AbortController();
    const connection = { id: 1, peer: { address: "unix", certificate: undefined } };
    const serve = async (fields: MessageInitShape<typeof RestoreDutiesRequestSchema>): Promise<Uint8Array> => {
      const asked = create(RestoreDutiesRequestSchema, fields);
      const served = serveRestoreDuties(restore as never, asked, {
        receivedAt: { wallNs: HOST_NS, monotonicMs: 0 },
        connection,
        signal: gone.signal,
      });
      gone.abort(new AgentError("CANCELLED", "CANCELLED", "the client cancelled the call"));
      await assert.rejects(served, AgentError);
      return asked.entropy;
    };
    const entropy = (sizeBytes = 64): Uint8Array => new Uint8Array(sizeBytes).fill(0xaa);
    const refused: readonly MessageInitShape<typeof RestoreDutiesRequestSchema>[] = [
      { entropy: entropy(), hostTime: { seconds: 0n, nanos: -1 } },
      { entropy: entropy(ENTROPY_LIMIT_BYTES + 1) },
      { entropy: entropy() },
    ];
    for (const fields of refused) assert.ok((await serve(fields)).every((byte) => byte === 0));
    gate.resolve();
    await running;
  });

  it("the restore steps never overlap with a freeze", async () => {
    const gate = Promise.withResolvers<void>();
    const { restore, dutyQueue, events } = setup({ sweep: () => gate.promise.then(() => void events.push("hooks")) });
    const { signal } = new AbortController();
    const freeze = (name: string) => dutyQueue.run(async () => events.push(`${name} frozen`), signal);
    const first = freeze("first");
    const running = restore.run(request(), call());
    const second = freeze("second");
    await first;
    gate.resolve();
    await Promise.all([running, second]);
    assert.deepEqual(events, [
      "first frozen",
      "hooks",
      "credentials",
      "connections but ours",
      "thaw",
      "timers",
      "second frozen",
    ]);
  });

  it("concurrent restore calls take turns, and only a newer host time sets the clock", async () => {
    const gate = Promise.withResolvers<void>();
    let inside = 0;
    const { restore, kernel, randomness } = setup({
      sweep: async () => {
        assert.equal(++inside, 1);
        await gate.promise;
        inside--;
      },
    });
    const times = [1n, 5n, 3n, 8n, 8n, 2n, 7n, 9n].map((seconds) => HOST_NS + seconds * SECOND_NS);
    const reports = times.map((time) => restore.run(request(time), call()));
    gate.resolve();
    const stepped = (await Promise.all(reports)).map((report) => report.clockStepped);
    assert.deepEqual(stepped, [true, true, false, true, false, false, false, true]);
    assert.equal(kernel.steppedTo.length, 4);
    assert.ok(kernel.steppedTo.every((ns, index) => index === 0 || ns > (kernel.steppedTo[index - 1] ?? 0n)));
    assert.equal(randomness.seeds.length, 8);
  });

  it("a queued restore whose caller disconnected never begins", async () => {
    const gate = Promise.withResolvers<void>();
    const { restore, randomness } = setup({ sweep: () => gate.promise });
    const gone = new AbortController();
    const first = restore.run(request(), call());
    const second = restore.run(request(), call("other", gone.signal));
    gone.abort(new AgentError("CANCELLED", "CANCELLED", "the client cancelled the call"));
    await assert.rejects(second, /cancelled/);
    gate.resolve();
    await first;
    assert.equal(randomness.seeds.length, 1);
  });

  it("DutyQueue.settled waits while a restore call is arriving or running", async () => {
    const gate = Promise.withResolvers<void>();
    const { restore, dutyQueue } = setup({ sweep: () => gate.promise });
    const { signal } = new AbortController();
    await dutyQueue.settled(signal);
    const over = restore.begin();
    let settled = false;
    const waiting = dutyQueue.settled(signal).then(() => (settled = true));
    const running = restore.run(request(), call());
    over();
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(settled, false, "they run still");
    gate.resolve();
    await running;
    await waiting;
  });

  it("DutyQueue.settled rejects when its caller aborts", async () => {
    const { restore, dutyQueue } = setup();
    restore.begin();
    const gone = new AbortController();
    const waiting = dutyQueue.settled(gone.signal);
    gone.abort(new Error("gone"));
    await assert.rejects(waiting, /gone/);
  });
});

describe("a rehearsal of the restore steps", () => {
  it("a rehearsal of restore steps mixes no entropy and sets no clock", async () => {
    const causes: string[] = [];
    const renew: Course["renew"] = (cause) => {
      causes.push(cause);
      return Promise.resolve({ credentials: false, environment: false });
    };
    const { parts, restore, kernel, randomness, events } = setup({ renew });
    const attached = parts.activity.attach();
    const report = await rehearsedDuties(parts).run(request(HOST_NS), call());
    assert.deepEqual(kernel.calls, ["open", "credit 0", "reseed", "close", "step"]);
    assert.deepEqual(kernel.steppedTo, [-1n]);
    assert.equal(randomness.seeds.length, 1);
    assert.deepEqual([causes, events], [["snapshot"], ["hooks", "connections but ours", "thaw", "timers"]]);
    assert.deepEqual([report.degraded, restore.generation], [[], 0]);
    const ranNs = systemClock.wallNs();
    // Later than the rehearsal, however coarse the clock.
    while (systemClock.wallNs() === ranNs) await Promise.resolve();
    attached.cut();
    assert.ok(parts.activity.lastNs() > ranNs, "a client that goes is activity: it was not restored");
    assert.deepEqual(parts.log.lines, []);
  });

  it("the addon rejects a negative entropy descriptor and negative clock times", () => {
    // The kernel would say EBADF.
    assert.equal(addon.creditEntropy(-1, new Uint8Array()), -EINVAL);
    assert.equal(addon.setRealtimeNs(-1n), -EINVAL);
  });

  it("a restore rehearsal does not wait for a hung file system", async () => {
    const { parts, events } = setup({ renew: () => new Promise(() => {}) });
    await rehearsedDuties(parts).run(request(), call());
    assert.equal(events.at(-1), "timers");
  });
});
