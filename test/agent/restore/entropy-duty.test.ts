import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, it } from "node:test";
import { renewRandomness } from "../../../src/agent/restore/index.ts";
import { type KernelAnswers, RecordingKernel, RecordingRandomness } from "../../fixtures/recording-kernel.ts";

const ENTROPY = randomBytes(1_200);

function renew(answers: KernelAnswers = {}, entropy: Uint8Array = ENTROPY) {
  const kernel = new RecordingKernel(answers);
  const randomness = new RecordingRandomness();
  const result = renewRandomness(entropy, kernel, randomness);
  return { kernel, randomness, result };
}

describe("renewing randomness", () => {
  it("credits all bytes in blocks of at most 512, then forces a reseed, then closes the device", () => {
    const { kernel, result } = renew();
    assert.deepEqual(kernel.calls, ["open", "credit 512", "credit 512", "credit 176", "reseed", "close"]);
    assert.deepEqual(Buffer.concat(kernel.taken), ENTROPY);
    assert.deepEqual(result, { entropyBytesMixed: 1_200, entropyCredited: true, degraded: [] });
  });

  it("gives the process's own generators a seed that depends on the entropy and is none of it", () => {
    const [first, again, other] = [renew(), renew(), renew({}, randomBytes(64))].map(({ randomness }) => {
      assert.equal(randomness.seeds.length, 1);
      return Buffer.from(randomness.seeds[0] ?? []);
    });
    assert.equal(first?.length, 64);
    assert.deepEqual(first, again);
    assert.notDeepEqual(first, other);
    assert.equal(ENTROPY.indexOf(first?.subarray(0, 8) ?? ""), -1);
  });

  it("mixes what it may not credit, and says so", () => {
    const { kernel, result } = renew({ credit: ["EPERM"], reseed: "EPERM" });
    assert.deepEqual(kernel.calls, ["open", "credit 512", "mix 512", "mix 512", "mix 176", "reseed", "close"]);
    assert.deepEqual(Buffer.concat(kernel.taken), ENTROPY);
    assert.deepEqual(result, {
      entropyBytesMixed: 1_200,
      entropyCredited: false,
      degraded: ["entropy_credit:EPERM", "crng_reseed:EPERM"],
    });
  });

  it("does not call entropy credited of which only a part was", () => {
    const { kernel, result } = renew({ credit: [undefined, "EFAULT"] });
    assert.deepEqual(Buffer.concat(kernel.taken), ENTROPY);
    assert.deepEqual(result, { entropyBytesMixed: 1_200, entropyCredited: false, degraded: ["entropy_credit:EFAULT"] });
  });

  it("counts the bytes that the kernel took, not those that it was given", () => {
    assert.deepEqual(renew({ credit: [undefined, "EPERM"], mix: "EIO" }).result, {
      entropyBytesMixed: 512,
      entropyCredited: false,
      degraded: ["entropy_credit:EPERM", "entropy_mix:EIO"],
    });
    assert.equal(renew({ credit: ["EPERM"], mix: 0 }).result.entropyBytesMixed, 0);
    const slow = renew({ credit: ["EPERM"], mix: 100 });
    assert.equal(slow.result.entropyBytesMixed, 1_200);
    assert.deepEqual(Buffer.concat(slow.kernel.taken), ENTROPY);
  });

  it("reseeds its own generators also where there is no kernel device", () => {
    const { kernel, randomness, result } = renew({ open: "ENOENT" });
    assert.deepEqual(kernel.calls, ["open"]);
    assert.equal(randomness.seeds.length, 1);
    assert.deepEqual(result, {
      entropyBytesMixed: 0,
      entropyCredited: false,
      degraded: ["entropy_open:ENOENT", "crng_reseed:ENOENT"],
    });
  });

  it("says that a reseed failed, or that this kernel's word for it is not enough", () => {
    assert.deepEqual(renew({ reseed: "ENODATA" }).result.degraded, ["crng_reseed:ENODATA"]);
    assert.deepEqual(renew({ confirmsReseed: false }).result.degraded, ["crng_reseed:unverified"]);
  });

  it("uses few bytes all the same, and calls them few", () => {
    assert.deepEqual(renew({}, randomBytes(31)).result, {
      entropyBytesMixed: 31,
      entropyCredited: true,
      degraded: ["entropy_short"],
    });
    assert.deepEqual(renew({}, randomBytes(32)).result.degraded, []);
  });

  it("says that the process's own generators could not be reseeded", () => {
    for (const problem of ["no_symbols", "failed"] as const) {
      const result = renewRandomness(ENTROPY, new RecordingKernel(), new RecordingRandomness(problem));
      assert.deepEqual(result.degraded, [`openssl_drbg:${problem}`]);
    }
  });
});
