import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const PERIOD_US = 100_000;
/** What `loopMs` returns on an unoccupied core of the machine on which a tenth of a core was set as the goal. */
const REFERENCE_LOOP_MS = 18;
const LOOPS = 7;
/** Of cgroup v1, and of v2. */
const V1 = "/sys/fs/cgroup/cpu";
const V2 = "/sys/fs/cgroup";

/** The shortest of some runs of the same computation, in milliseconds. */
function loopMs(): number {
  const times = Array.from({ length: LOOPS }, () => {
    const began = performance.now();
    let sum = 0;
    for (let at = 0; at < 20_000_000; at += 1) sum += at % 7;
    // Without a use of the sum, the compiler could remove the loop.
    return sum < 0 ? 0 : performance.now() - began;
  });
  return Math.min(...times);
}

/**
 * How much slower this machine is at the moment than the one on which the goal was set; at least 1, at most 4. A
 * virtual machine beside busy neighbours may be half as fast as usual.
 */
function slowness(): number {
  return Math.min(Math.max(loopMs() / REFERENCE_LOOP_MS, 1), 4);
}

/** A cgroup whose processes share a part of one core (Linux, Documentation/scheduler/sched-bwc.rst). */
export class Quota implements Disposable {
  readonly #directory: string;
  readonly #isV1: boolean;

  private constructor(directory: string, isV1: boolean) {
    this.#directory = directory;
    this.#isV1 = isV1;
  }

  /** Makes one, or says why this machine lets nobody do so. @param share of a core, such as 0.1 */
  static make(share: number): Quota | string {
    const isV1 = existsSync(join(V1, "cpu.cfs_quota_us"));
    try {
      if (!isV1 && !/\bcpu\b/.test(readFileSync(join(V2, "cgroup.subtree_control"), "utf8")))
        return "the root cgroup does not hand on the cpu controller";
      const directory = mkdtempSync(join(isV1 ? V1 : V2, "guest-agent-test-"));
      const quota = new Quota(directory, isV1);
      quota.allow(share);
      return quota;
    } catch (error) {
      return `no cgroup with a quota of the processor can be made: ${String(error)}`;
    }
  }

  /** Changes the share of a core. */
  allow(share: number): void {
    const quotaUs = Math.round(share * PERIOD_US);
    if (this.#isV1) {
      writeFileSync(join(this.#directory, "cpu.cfs_period_us"), String(PERIOD_US));
      writeFileSync(join(this.#directory, "cpu.cfs_quota_us"), String(quotaUs));
    } else writeFileSync(join(this.#directory, "cpu.max"), `${quotaUs} ${PERIOD_US}`);
  }

  add(pid: number): void {
    writeFileSync(join(this.#directory, "cgroup.procs"), String(pid));
  }

  /** Its processes must have ended. */
  [Symbol.dispose](): void {
    rmdirSync(this.#directory);
  }
}

/** Fails the test where a node side cannot be given this share of a core, or more where this machine is slow. */
export function shareOfACore(share: number): Quota {
  const quota = Quota.make(share * slowness());
  if (typeof quota === "string") assert.fail(quota);
  return quota;
}
