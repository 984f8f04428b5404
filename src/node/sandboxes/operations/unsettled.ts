import { type InstanceParts, type SandboxEntry } from "../state/index.ts";
import { wake } from "./suspend.ts";

/**
 * How long the daemon may work on a call whose caller has ended. This is the daemon's time limit for the call
 * (cmd/api/main.go:523) plus the time to restore the source.
 */
const AT_IT_MS = 75_000;

/** Whether the daemon may still be executing a suspension that was requested by a process that has ended. */
export function isBeingSuspended({ asked }: SandboxEntry): boolean {
  return asked !== undefined && Date.now() < asked.atMs + AT_IT_MS;
}

/**
 * Waits until the daemon has completed a suspension that was requested by a process that has ended. After a standby,
 * the sandbox is suspended. After a snapshot or a fork, the daemon restores the sandbox; if it has failed to do so,
 * this function restores it. Then deletes `asked` from the entry, because nothing is pending any more, and resolves
 * with the entry.
 */
export async function settled(node: InstanceParts, entry: SandboxEntry): Promise<SandboxEntry> {
  const { asked, name } = entry;
  if (asked === undefined) return entry;
  if (isBeingSuspended(entry) && (await node.instances.find(entry)) !== undefined) {
    node.step(asked.operation, name, `wait for the end of the ${asked.operation} of an earlier process`);
    // The daemon serializes the calls on an instance, so the restore below waits until the snapshot or fork has ended
    // (lib/instances/manager.go:582-592).
    if (asked.operation === "snapshot" || asked.operation === "fork") await wake(node, entry).catch(() => undefined);
    else await node.instances.awaited(entry, ({ state }) => state === "Standby", asked.atMs + AT_IT_MS - Date.now());
  }
  const known = { ...node.journal.sandbox(name), asked: undefined };
  await node.journal.put(known);
  return known;
}
