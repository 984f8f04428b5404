import { type Needs, type SandboxEntry } from "../node/index.ts";
import { wake } from "./suspend.ts";

/** How long after a call the daemon may still be at it: its limit (cmd/api/main.go:523), and a restore of the source. */
const AT_IT_MS = 75_000;

/** Whether the daemon may still be doing what a process had asked of it that has ended since. */
export function isBeingSuspended({ asked }: SandboxEntry): boolean {
  return asked !== undefined && Date.now() < asked.atMs + AT_IT_MS;
}

/**
 * Waits for the end of a suspension that a process has asked for which is gone: the daemon carries it out. It is then
 * asleep after a standby; after a snapshot or fork it is restored, also if the daemon has failed to. Resolves with its
 * entry, which says nothing of the call any more.
 */
export async function settled(
  node: Needs<"substrate" | "journal" | "instances" | "step">,
  entry: SandboxEntry,
): Promise<SandboxEntry> {
  const { asked, name } = entry;
  if (asked === undefined) return entry;
  if (isBeingSuspended(entry) && (await node.instances.find(entry)) !== undefined) {
    node.step(asked.operation, name, `wait for the end of the ${asked.operation} that an earlier process has begun`);
    // The daemon carries out one call on an instance after the other (lib/instances/manager.go:582-592).
    if (asked.operation === "snapshot" || asked.operation === "fork") await wake(node, entry).catch(() => undefined);
    else await node.instances.awaited(entry, ({ state }) => state === "Standby", asked.atMs + AT_IT_MS - Date.now());
  }
  const known = { ...node.journal.sandbox(name), asked: undefined };
  await node.journal.put(known);
  return known;
}
