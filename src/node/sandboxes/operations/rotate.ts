import type { GuestClient } from "../../client/index.ts";
import type { ClientCredentials } from "../../credentials/index.ts";
import { handOver, isRunning, type NodeParts, nextOf, type SandboxEntry } from "../state/index.ts";
import { paused, unreached, wrongState } from "./state-errors.ts";

/**
 * Gives a running sandbox a new certificate authority, certificates and token. First they are issued in addition to the
 * current ones, written into the guest, and tested with a new connection. Then the old ones are removed in the guest
 * and on the host. An interrupted rotation continues where it stopped.
 */
export async function rotate(node: NodeParts, entry: SandboxEntry): Promise<SandboxEntry> {
  const { name } = entry;
  const { state, stateError } = await node.instances.existing(entry);
  if (state === "Paused") throw paused(entry);
  if (state === "Unknown") throw unreached(name, stateError);
  const rule = "only a running sandbox that has done its restore steps can get new credentials; resume it first";
  if (!isRunning(state) || entry.runEpochMs === undefined) throw wrongState(name, state, rule);
  return finishRotation(node, { ...entry, rotatingSinceMs: entry.rotatingSinceMs ?? Date.now() });
}

/** Performs or continues the rotation of a sandbox that is known to be running. */
export async function finishRotation(node: NodeParts, rotating: SandboxEntry): Promise<SandboxEntry> {
  const { name } = rotating;
  const { credentials, guests, journal, step } = node;
  // Record the rotation before anything is issued, because after a crash, only the entry shows that the new credentials
  // belong to this sandbox.
  const isBegun = journal.sandbox(name).rotatingSinceMs !== undefined;
  if (!isBegun) await journal.put(rotating);
  if (!isBegun || credentials.hasNext(name)) {
    step("rotate", name, "issue credentials");
    await credentials.issueNext(name);
    const [old, fresh, files] = await Promise.all([
      // `replace` first renames the sandbox's directory, and then gives its name to the directory with the new
      // credentials. If a process has crashed in between, the sandbox's directory is missing, so use the new directory.
      credentials.client(name).catch(() => credentials.client(nextOf(name))),
      credentials.client(nextOf(name)),
      credentials.guestFiles(nextOf(name)),
    ]);
    const dial = (own: ClientCredentials): Promise<GuestClient> =>
      guests.dial(rotating, { credentials: own, credentialsOf: [name, nextOf(name)] });
    step("rotate", name, "write the new credentials into the guest, and connect with them");
    await handOver(dial, { old, fresh, files }, { reachTimeoutMs: guests.patience.reachTimeoutMs });
  }
  step("rotate", name, "remove the old credentials");
  await credentials.replace(name);
  const rotated = { ...journal.sandbox(name), rotatingSinceMs: undefined, credentialsIssuedMs: Date.now() };
  await journal.put(rotated);
  return rotated;
}
