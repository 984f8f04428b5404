import { addressOf, afterColon, isOff, type InstanceParts, ready, reasonOfEnd } from "../state/index.ts";
import { SandboxError } from "../substrate/index.ts";
import { isBeingSuspended, paused, sourceStillSuspended } from "../operations/index.ts";
import { ownSandbox } from "./own.ts";

/** The address and the credentials of a sandbox's agent. */
export interface Reach {
  /** Address of the agent, as HOST:PORT. */
  readonly address: string;
  /** Directory of the credentials, in the layout that `guestctl --credentials` expects. */
  readonly credentials: string;
}

/**
 * Finds the agent of a sandbox that is running and has run its restore steps. For any other sandbox, rejects with
 * SandboxError, whose remedy says what to call next. Its code is NOT_FOUND, WRONG_STATE, PAUSED, SOURCE_ASLEEP, or, if
 * the instance has no address, AGENT_UNREACHABLE.
 */
export async function reach(node: InstanceParts, name: string): Promise<Reach> {
  const entry = ready(await ownSandbox(node, name));
  const instance = await node.instances.existing(entry);
  const { id, state, ip } = instance;
  if (state === "Paused" && isBeingSuspended(entry)) throw asleep(name, "is being suspended");
  if (state === "Paused") throw paused(entry);
  if (state === "Standby" && entry.asleepBecause !== undefined) throw sourceStillSuspended(name, entry.asleepBecause);
  if (state === "Standby") throw asleep(name, "sleeps (Standby)");
  if (isOff(instance)) throw stopped(name, state, await reasonOfEnd(node.substrate, id));
  if (entry.bootingSinceMs !== undefined) throw asleep(name, "is booting and has not answered yet");
  if (entry.runEpochMs === undefined)
    throw asleep(name, `is ${state}, but the restore steps after its last suspension have not run yet`);
  if (ip === undefined) throw new SandboxError("AGENT_UNREACHABLE", `the instance of ${name} has no address`);
  return { address: addressOf(entry, ip), credentials: node.credentials.directoryOf(name) };
}

function asleep(name: string, how: string): SandboxError {
  return new SandboxError("WRONG_STATE", `${name} ${how}`, undefined, { remedy: { kind: "resume", name } });
}

function stopped(name: string, state: string, reason: string | undefined): SandboxError {
  const message = `${name} is stopped (${state})${afterColon(reason)}`;
  return new SandboxError("WRONG_STATE", message, undefined, { remedy: { kind: "start", name } });
}
