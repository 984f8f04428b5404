import { existsSync } from "node:fs";
import { release, totalmem } from "node:os";

import type { Errno, GuestFacts, MemoryFacts } from "../../domain/index.ts";
import { type Addon, errnoName } from "../../native/index.ts";
import { entropyFacts } from "../kernel/index.ts";
import { cgroupFacts } from "../processes/index.ts";
import { deviceProblems, isProcMounted, terminalProblem } from "./devices.ts";

const EINVAL = "EINVAL";

/**
 * Finds out what the guest offers to an agent whose entrypoint has the process id `entrypoint`. To try them it makes a
 * cgroup, a terminal and, where there is none, a random device; it leaves nothing behind.
 */
export function guestFacts(addon: Addon, entrypoint: number): GuestFacts {
  const capabilities = addon.effectiveCapabilities();
  return {
    kernel: release(),
    uid: process.getuid?.() ?? 0,
    isInit: entrypoint === 1,
    capabilities: typeof capabilities === "bigint" ? capabilities : undefined,
    hasSeccompFilter: addon.seccompMode() > 0,
    hasProc: isProcMounted(),
    hasAccounts: existsSync("/etc/passwd"),
    devices: deviceProblems(),
    terminal: terminalProblem(addon),
    cgroups: cgroupFacts(addon),
    clockStep: refusal(addon.probeClockStep()),
    entropy: entropyFacts(addon),
    systemCalls: { clone3: refusal(addon.probeClone3()), close_range: refusal(addon.probeCloseRange()) },
    memory: memory(),
    openFiles: addon.openFilesLimitOf(process.pid),
  };
}

/** A probe is answered with EINVAL by whoever would let the real call through. */
function refusal(result: number): Errno | undefined {
  const name = errnoName(result);
  return name === EINVAL ? undefined : name;
}

function memory(): MemoryFacts {
  const totalBytes = totalmem();
  const limitBytes = process.constrainedMemory();
  return { totalBytes, limitBytes: limitBytes > 0 && limitBytes < totalBytes ? limitBytes : undefined };
}
