import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, it } from "node:test";
import { ActivityClock, type Clock, Stamps } from "../../../src/agent/domain/index.ts";
import { ClockDuty } from "../../../src/agent/restore/clock-duty.ts";
import { renewRandomness } from "../../../src/agent/restore/index.ts";
import { SimulatedClock } from "../../fixtures/clocks.ts";
import { type KernelAnswers, RecordingKernel, RecordingRandomness } from "../../fixtures/recorders.ts";

const MS = 1_000_000n;
const HOST_NS = 1_800_000_000_000_000_000n;
const MINUTE_NS = 60_000n * MS;
const HOUR_NS = 60n * MINUTE_NS;
/** The call arrives at 1000 ms of the monotonic clock; it is 1250.5 ms when the clock is set. */
const CLOCK: Clock = { wallNs: () => HOST_NS, monotonicMs: () => 1_250.5 };

function arrival(driftNs: bigint) {
  return { wallNs: HOST_NS + driftNs, monotonicMs: 1_000 };
}

function duty(answers: KernelAnswers = {}): { kernel: RecordingKernel; clock: ClockDuty } {
  const kernel = new RecordingKernel(answers);
  return { kernel, clock: new ClockDuty({ kernel, clock: CLOCK, stamps: new Stamps(CLOCK) }) };
}

describe("ClockDuty", () => {
  it("ClockDuty leaves the clock unchanged if the host sends no time", () => {
    const { kernel, clock } = duty();
    assert.deepEqual(clock.run(undefined, arrival(HOUR_NS), undefined), {
      clockDriftMs: 0n,
      clockStepped: false,
      degraded: [],
    });
    assert.deepEqual(kernel.calls, []);
  });

  it("ClockDuty sets the clock to host time plus elapsed time, reporting drift", () => {
    for (const [driftNs, driftMs] of [
      [-HOUR_NS, -3_600_000n],
      [HOUR_NS, 3_600_000n],
      [0n, 0n],
      [-1n, 0n],
      [1_999_999n, 1n],
    ] as const) {
      const { kernel, clock } = duty();
      assert.deepEqual(clock.run(HOST_NS, arrival(driftNs), undefined), {
        clockDriftMs: driftMs,
        clockStepped: true,
        degraded: [],
      });
      assert.deepEqual(kernel.steppedTo, [HOST_NS + 250_500_000n]);
    }
  });

  it("ClockDuty corrects a clock that an earlier call had set wrongly", () => {
    for (const wrongNs of [24n * HOUR_NS, HOUR_NS, MINUTE_NS + 1n, -24n * HOUR_NS]) {
      const { kernel, clock } = duty();
      assert.equal(clock.run(HOST_NS + wrongNs, arrival(0n), undefined).clockStepped, true);
      assert.deepEqual(clock.run(HOST_NS, arrival(wrongNs), undefined).degraded, []);
      assert.equal(kernel.steppedTo.at(-1), HOST_NS + 250_500_000n);
      assert.deepEqual(clock.run(HOST_NS, arrival(0n), undefined).degraded, ["clock_stale"], "that one counts now");
    }
  });

  it("ClockDuty reports why the kernel refused a clock step and allows retries", () => {
    const { clock } = duty({ step: "EPERM" });
    for (let call = 0; call < 2; call++) {
      assert.deepEqual(clock.run(HOST_NS, arrival(-HOUR_NS), undefined), {
        clockDriftMs: -3_600_000n,
        clockStepped: false,
        degraded: ["clock_set:EPERM"],
      });
    }
  });

  it("ClockDuty sets only times within the validity period of the caller's certificate", () => {
    const hostMs = Number(HOST_NS / MS);
    for (const [validity, steps] of [
      [{ notBeforeMs: hostMs - 1, notAfterMs: hostMs + 1 }, true],
      [{ notBeforeMs: hostMs, notAfterMs: hostMs + 1 }, true],
      [{ notBeforeMs: hostMs + 1, notAfterMs: hostMs + 2 }, false],
      [{ notBeforeMs: hostMs - 1, notAfterMs: hostMs }, false],
    ] as const) {
      const { kernel, clock } = duty();
      const result = clock.run(HOST_NS, arrival(0n), validity);
      assert.equal(result.clockStepped, steps);
      assert.deepEqual(result.degraded, steps ? [] : ["clock_outside_cert"]);
      assert.equal(kernel.steppedTo.length, steps ? 1 : 0);
    }
  });

  it("ClockDuty shifts activity timestamps taken before the clock was first set", () => {
    const clock = new SimulatedClock(60_000);
    const stamps = new Stamps(clock);
    const activity = new ActivityClock(stamps);
    const kernel = Object.assign(new RecordingKernel(), {
      stepClock: (ns: bigint) => {
        clock.set(ns);
        return undefined;
      },
    });
    clock.pass(2_000);
    const arrived = { wallNs: clock.wallNs(), monotonicMs: clock.monotonicMs() };
    const hostMs = Number(HOST_NS / MS);
    const validity = { notBeforeMs: hostMs - 86_400_000, notAfterMs: hostMs + 86_400_000 };
    assert.equal(new ClockDuty({ kernel, clock, stamps }).run(HOST_NS, arrived, validity).clockStepped, true);
    assert.equal(clock.wallNs() - activity.lastNs(), 2_000n * MS);
  });

  it("after refusing one host time, ClockDuty accepts an earlier, valid host time", () => {
    const { clock } = duty();
    const hostMs = Number(HOST_NS / MS);
    const validity = { notBeforeMs: hostMs - 1_000, notAfterMs: hostMs + 1_000 };
    assert.deepEqual(clock.run(HOST_NS + HOUR_NS, arrival(0n), validity).degraded, ["clock_outside_cert"]);
    assert.equal(clock.run(HOST_NS, arrival(0n), validity).clockStepped, true);
  });
});

const ENTROPY = randomBytes(1_200);

function renew(answers: KernelAnswers = {}, entropy: Uint8Array = ENTROPY) {
  const kernel = new RecordingKernel(answers);
  const randomness = new RecordingRandomness();
  const result = renewRandomness(entropy, kernel, randomness);
  return { kernel, randomness, result };
}

describe("renewRandomness", () => {
  it("renewRandomness credits entropy in 512-byte blocks, reseeds, and closes the device", () => {
    const { kernel, result } = renew();
    assert.deepEqual(kernel.calls, ["open", "credit 512", "credit 512", "credit 176", "reseed", "close"]);
    assert.deepEqual(Buffer.concat(kernel.taken), ENTROPY);
    assert.deepEqual(result, { entropyBytesMixed: 1_200, entropyCredited: true, degraded: [] });
  });

  it("renewRandomness seeds OpenSSL with bytes derived from the entropy", () => {
    const [first, again, other] = [renew(), renew(), renew({}, randomBytes(64))].map(({ randomness }) => {
      assert.equal(randomness.seeds.length, 1);
      return Buffer.from(randomness.seeds[0] ?? []);
    });
    assert.equal(first?.length, 64);
    assert.deepEqual(first, again);
    assert.notDeepEqual(first, other);
    assert.equal(ENTROPY.indexOf(first?.subarray(0, 8) ?? ""), -1);
  });

  it("renewRandomness mixes in entropy even if the kernel refuses to credit it", () => {
    const { kernel, result } = renew({ credit: ["EPERM"], reseed: "EPERM" });
    assert.deepEqual(kernel.calls, ["open", "credit 512", "mix 512", "mix 512", "mix 176", "reseed", "close"]);
    assert.deepEqual(Buffer.concat(kernel.taken), ENTROPY);
    assert.deepEqual(result, {
      entropyBytesMixed: 1_200,
      entropyCredited: false,
      degraded: ["entropy_credit:EPERM", "crng_reseed:EPERM"],
    });
  });

  const REPORTS: readonly (readonly [
    what: string,
    answers: KernelAnswers,
    mixedBytes: number,
    isCredited: boolean,
    degraded: readonly string[],
    entropy?: Uint8Array,
  ])[] = [
    ["a partly refused credit", { credit: [undefined, "EFAULT"] }, 1_200, false, ["entropy_credit:EFAULT"]],
    [
      "bytes that the kernel did not mix",
      { credit: [undefined, "EPERM"], mix: "EIO" },
      512,
      false,
      ["entropy_credit:EPERM", "entropy_mix:EIO"],
    ],
    [
      "zero bytes if the kernel took none",
      { credit: ["EPERM"], mix: 0 },
      0,
      false,
      ["entropy_credit:EPERM", "entropy_mix:EIO"],
    ],
    ["all bytes taken in small writes", { credit: ["EPERM"], mix: 100 }, 1_200, false, ["entropy_credit:EPERM"]],
    ["a failed reseed", { reseed: "ENODATA" }, 1_200, true, ["crng_reseed:ENODATA"]],
    ["a reseed that the kernel cannot confirm", { confirmsReseed: false }, 1_200, true, ["crng_reseed:unverified"]],
    ["entropy_short for 31 bytes, which it still mixes", {}, 31, true, ["entropy_short"], randomBytes(31)],
    ["no entropy_short for 32 bytes", {}, 32, true, [], randomBytes(32)],
  ];
  for (const [what, answers, entropyBytesMixed, entropyCredited, degraded, entropy = ENTROPY] of REPORTS)
    it(`renewRandomness reports ${what}`, () => {
      const { kernel, result } = renew(answers, entropy);
      assert.deepEqual(result, { entropyBytesMixed, entropyCredited, degraded });
      assert.deepEqual(Buffer.concat(kernel.taken), entropy.subarray(0, entropyBytesMixed));
    });

  it("renewRandomness seeds OpenSSL even without a kernel device", () => {
    const { kernel, randomness, result } = renew({ open: "ENOENT" });
    assert.deepEqual(kernel.calls, ["open"]);
    assert.equal(randomness.seeds.length, 1);
    assert.deepEqual(result, {
      entropyBytesMixed: 0,
      entropyCredited: false,
      degraded: ["entropy_open:ENOENT", "crng_reseed:ENOENT"],
    });
  });

  it("renewRandomness names the reason why OpenSSL was not reseeded", () => {
    for (const problem of ["no_symbols", "failed"] as const) {
      const result = renewRandomness(ENTROPY, new RecordingKernel(), new RecordingRandomness(problem));
      assert.deepEqual(result.degraded, [`openssl_drbg:${problem}`]);
    }
  });
});
