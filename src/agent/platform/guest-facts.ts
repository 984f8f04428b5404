import { closeSync, existsSync, statfsSync, statSync } from "node:fs";
import { release, totalmem } from "node:os";
import type { Errno, GuestFacts, MemoryFacts } from "../domain/index.ts";
import { type Addon, errnoName, failedWith } from "../native/index.ts";
import { readProc } from "./proc.ts";
import { cgroupFacts } from "./processes/own-cgroup.ts";
import { entropyFacts } from "./random-device.ts";

const EINVAL = "EINVAL";

/**
 * Detects what the guest supports. `entrypoint` is the process id of the agent's entrypoint. As a test, creates a
 * cgroup, a terminal and (if the guest has no random device) a random device, and removes them again.
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
    // No vsock socket is opened as a test, because opening one would load the kernel module.
    hasVsock: existsSync("/dev/vsock") || /^AF_VSOCK\b/m.test(readProc("/proc/net/protocols")),
    cgroups: cgroupFacts(addon),
    clockStep: refusal(addon.probeClockStep()),
    entropy: entropyFacts(addon),
    systemCalls: { clone3: refusal(addon.probeClone3()), close_range: refusal(addon.probeCloseRange()) },
    memory: memory(),
    openFiles: addon.openFilesLimitOf(process.pid),
  };
}

/**
 * The errno with which a probe was refused; undefined if the call is permitted. A probe makes the system call with an
 * invalid argument, so that EINVAL means that a valid call would be permitted.
 */
function refusal(result: number): Errno | undefined {
  const name = errnoName(result);
  return name === EINVAL ? undefined : name;
}

function memory(): MemoryFacts {
  const totalBytes = totalmem();
  const limitBytes = process.constrainedMemory();
  return { totalBytes, limitBytes: limitBytes > 0 && limitBytes < totalBytes ? limitBytes : undefined };
}

/** Device numbers (Documentation/admin-guide/devices.txt) as major * 256 + minor. */
const DEVICES: Readonly<Record<string, number>> = {
  "/dev/null": 0x103,
  "/dev/urandom": 0x109,
};
/** PROC_SUPER_MAGIC (statfs(2)). */
const PROC_FILE_SYSTEM = 0x9fa0;
const COLUMNS = 80;
const ROWS = 24;

/** What is wrong with each device that commands expect; undefined for a usable device. */
function deviceProblems(): GuestFacts["devices"] {
  return Object.fromEntries(Object.entries(DEVICES).map(([path, number]) => [path, deviceProblem(path, number)]));
}

function deviceProblem(path: string, number: number): string | undefined {
  try {
    const stat = statSync(path);
    return stat.isCharacterDevice() && stat.rdev === number ? undefined : "NOT_A_DEVICE";
  } catch (error) {
    return failedWith(error) ?? "EIO";
  }
}

/** Checks the file system type, because the image may have an ordinary directory at /proc. */
function isProcMounted(): boolean {
  try {
    return statfsSync("/proc").type === PROC_FILE_SYSTEM;
  } catch {
    return false;
  }
}

/** Tests whether a terminal can be opened for a command. Returns the errno if not. */
function terminalProblem(addon: Pick<Addon, "openTerminal">): Errno | undefined {
  const opened = addon.openTerminal(COLUMNS, ROWS);
  if (typeof opened === "number") return errnoName(opened);
  for (const fd of opened) closeSync(fd);
  return undefined;
}
