import type { Patch } from "../harness/patches.ts";
import type { CheckName } from "./checks.ts";

/** A duty that a build leaves out, and the checks that must notice. */
export interface Mutation {
  /** What the build does not do. */
  readonly without: string;
  readonly patch: Patch;
  /** The checks that must fail. */
  readonly breaks: readonly CheckName[];
  /** Other checks that fail as a consequence, always or by chance; the rest must hold. */
  readonly mayBreak: readonly CheckName[];
}

/** One mutation for each duty that makes clones different. */
export const MUTATIONS: readonly Mutation[] = [
  {
    without: "the kernel's reseed",
    patch: {
      file: "src/agent/platform/random-device.ts",
      find: "reseed: () => failure(addon.reseedCrng(fd)),",
      replace: "reseed: () => undefined,",
    },
    breaks: ["kernel", "vdso"],
    mayBreak: ["hookNumbers"],
  },
  {
    without: "the reseed of OpenSSL",
    patch: {
      file: "src/agent/platform/kernel.ts",
      find: "const result = addon.reseedOpenssl(seed);",
      replace: "const result: number = 1;",
    },
    breaks: ["tls", "agent"],
    mayBreak: [],
  },
  {
    without: "the step of the clock",
    patch: {
      file: "src/agent/restore/clock-duty.ts",
      find: "return kernel.stepClock(hostTimeNs + elapsedNs);",
      replace: "return elapsedNs < 0n ? kernel.stepClock(hostTimeNs) : undefined;",
    },
    breaks: ["clock", "hookTime"],
    mayBreak: [],
  },
  {
    without: "the end of other connections",
    patch: {
      file: "src/agent/restore/restore.ts",
      find: "const droppedConnections = renew.dropOtherConnections(call.connection);",
      replace: "const droppedConnections = 0;",
    },
    breaks: ["connections"],
    mayBreak: ["execs"],
  },
];

/**
 * Makes the agent log numbers of its own generators, before and after it renews them: the shipped agent shows no UUIDs
 * or integers.
 */
export const SHOW_OWN_NUMBERS: Patch = {
  file: "src/agent/restore/restore.ts",
  find: "const entropy = renewRandomness(request.entropy, kernel, randomness);",
  replace: `
    const own = () => {
      const c = process.getBuiltinModule("node:crypto");
      return {
        uuid: c.randomUUID(),
        bytes: c.randomBytes(16).toString("hex"),
        integer: String(c.randomInt(2 ** 47)),
        web: Buffer.from(c.webcrypto.getRandomValues(new Uint8Array(16))).toString("hex"),
        key: c.createECDH("prime256v1").generateKeys("hex"),
      };
    };
    log.info("own_numbers", { when: "before", ...own() });
    const entropy = renewRandomness(request.entropy, kernel, randomness);
    log.info("own_numbers", { when: "after", ...own() });`,
};
