import type { EntropyDevice, Errno, Kernel, ProcessRandomness } from "../domain/index.ts";
import type { DegradedToken } from "./report.ts";

/** Below this no generator can be called fresh: 256 bits, what the kernel's own key holds. */
const ENOUGH_BYTES = 32;
/** The kernel takes 64 bytes at a time and copies from the caller between them; a fault there would leave half a block. */
const BLOCK_BYTES = 512;
/** Sets what OpenSSL gets apart from what the kernel gets: whoever knows the one must not know the other. */
const OPENSSL_LABEL = "guest-agent restore: OpenSSL additional input";

/** What became of the entropy. */
export interface EntropyResult {
  readonly entropyBytesMixed: number;
  readonly entropyCredited: boolean;
  readonly degraded: readonly DegradedToken[];
}

/**
 * Mixes the host's entropy into the kernel's generator, forces that to reseed, and then reseeds those of this process.
 * Without waiting anywhere, so that nothing else of the agent runs meanwhile. Leaves the entropy as it is.
 */
export function renewRandomness(entropy: Uint8Array, kernel: Kernel, randomness: ProcessRandomness): EntropyResult {
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

type Fed = Omit<EntropyResult, "degraded">;

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

/** Block by block: credited for as long as the kernel lets us, then only mixed. */
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
