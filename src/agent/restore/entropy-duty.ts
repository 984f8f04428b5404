import type { EntropyDevice, Errno, Kernel, ProcessRandomness } from "../domain/index.ts";
import type { DegradedToken, RestoreReport } from "./report.ts";

/** 256 bits, the size of the key of the kernel's generator. Less entropy cannot make a new state unpredictable. */
const ENOUGH_BYTES = 32;
/**
 * Largest number of bytes per RNDADDENTROPY request. Larger blocks have no advantage, because the kernel copies 64
 * bytes at a time.
 */
const BLOCK_BYTES = 512;
/**
 * Label for domain separation: OpenSSL's seed must not reveal the kernel's input, although both come from the same
 * entropy.
 */
const OPENSSL_LABEL = "guest-agent restore: OpenSSL additional input";

/** How much entropy the kernel's generator has accepted. */
type Fed = Pick<RestoreReport, "entropyBytesMixed" | "entropyCredited">;

/**
 * Mixes the host's entropy into the kernel's generator, forces a reseed, and then reseeds this process's generators.
 * Synchronous, so that no other code of the agent runs between these steps.
 */
export function renewRandomness(
  entropy: Uint8Array,
  kernel: Kernel,
  randomness: ProcessRandomness,
): Fed & Pick<RestoreReport, "degraded"> {
  const degraded: DegradedToken[] = [];
  if (entropy.length < ENOUGH_BYTES) degraded.push("entropy_short");
  const fed = feedKernel(entropy, kernel, degraded);
  const { createHash } = process.getBuiltinModule("node:crypto");
  const seed = createHash("sha512").update(OPENSSL_LABEL).update(entropy).digest();
  const problem = randomness.reseed(seed);
  seed.fill(0);
  if (problem !== undefined) degraded.push(`openssl_drbg:${problem}`);
  return { ...fed, degraded };
}

function feedKernel(entropy: Uint8Array, kernel: Kernel, degraded: DegradedToken[]): Fed {
  const device = kernel.openEntropyDevice();
  if (typeof device === "string") {
    degraded.push(`entropy_open:${device}`, `crng_reseed:${device}`);
    return { entropyBytesMixed: 0, entropyCredited: false };
  }
  try {
    const fed = mixIn(entropy, device, degraded);
    const problem = device.reseed();
    if (problem !== undefined) degraded.push(`crng_reseed:${problem}`);
    else if (!kernel.confirmsReseed) degraded.push("crng_reseed:unverified");
    return fed;
  } finally {
    device.close();
  }
}

/**
 * Mixes each block into the kernel's generator and credits it as entropy. Once the kernel refuses the credit, the
 * remaining blocks are only mixed in.
 */
function mixIn(entropy: Uint8Array, device: EntropyDevice, degraded: DegradedToken[]): Fed {
  let mixed = 0;
  let refusal: Errno | undefined;
  while (mixed < entropy.length) {
    const block = entropy.subarray(mixed, mixed + BLOCK_BYTES);
    refusal ??= device.credit(block);
    if (refusal === undefined) {
      mixed += block.length;
      continue;
    }
    const taken = device.mix(block);
    if (typeof taken === "string" || taken === 0) {
      degraded.push(`entropy_credit:${refusal}`, `entropy_mix:${taken === 0 ? "EIO" : taken}`);
      return { entropyBytesMixed: mixed, entropyCredited: false };
    }
    mixed += taken;
  }
  if (refusal !== undefined) degraded.push(`entropy_credit:${refusal}`);
  return { entropyBytesMixed: mixed, entropyCredited: refusal === undefined };
}
