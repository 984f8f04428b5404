import { messageOf } from "../../../shared/errors.ts";
import type { SandboxEntry } from "../state/index.ts";
import { type InstanceState, SandboxError } from "../substrate/index.ts";

/** Creates the error for an interrupted suspension or restore. The hypervisor may still have the sandbox's memory. */
export function paused({ name, instanceId = "ID" }: SandboxEntry, cause?: unknown): SandboxError {
  const because = cause === undefined ? "" : ` (${messageOf(cause)})`;
  const message = `${name} is Paused: its suspension or restore was interrupted${because}, and it neither runs nor is on standby`;
  const nextStep = `do not remove ${name}, because its memory can be saved; the daemon's operator must stop the daemon, run the script from docs/node/sandboxes.md in the directory guests/${instanceId} of the daemon's data directory, start the daemon, and run a sweep; if the hypervisor of ${name} is gone, fork the last snapshot of ${name} instead`;
  return new SandboxError("PAUSED", message, cause, { nextStep });
}

/**
 * Creates the error for a sandbox whose hypervisor the daemon cannot reach. If the hypervisor died unnoticed, its
 * socket remains, and the daemon refuses everything but deletion (hypeman 8853445, lib/instances/state.go:62-65).
 */
export function unreached(name: string, because = "the daemon gives no reason"): SandboxError {
  const message = `${name} is Unknown: the daemon cannot reach its hypervisor (${because})`;
  const nextStep =
    "remove the sandbox; or ask the operator to delete the socket of the dead hypervisor, and then resume the sandbox";
  return new SandboxError("WRONG_STATE", message, undefined, { nextStep });
}

/**
 * Creates the error for a sandbox that is suspended although nobody asked for it. The error's remedy wakes the sandbox
 * up.
 */
export function sourceStillSuspended(name: string, why: string, cause?: unknown): SandboxError {
  return new SandboxError("SOURCE_ASLEEP", `${name} is suspended: ${why}`, cause, { remedy: { kind: "wake", name } });
}

/** Creates the error for an operation that the current state of a sandbox does not allow. */
export function wrongState(name: string, state: InstanceState, rule: string): SandboxError {
  return new SandboxError("WRONG_STATE", `${name} is ${state}; ${rule}`);
}
