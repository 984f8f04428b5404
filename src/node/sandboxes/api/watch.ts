import { setTimeout as pause } from "node:timers/promises";
import { messageOf } from "../../../shared/errors.ts";
import type { Needs, NodeParts } from "../node/index.ts";
import type { Instance } from "../substrate/index.ts";
import { running, type WatchEvent, Watcher } from "./watcher.ts";

const DEFAULT_POLL_MS = 5_000;
/** Checks of all sandboxes together: 0.5 to 1 ms of this thread each. */
const MOST_A_SECOND = 100;
/** Checks that fall into the same tenth of a second begin together: each turn of the event loop has its price. */
const SLOT_MS = 100;
/** With more connections to make, all addresses are listed at once. */
const FEW_DIALS = 4;

/** How to watch. */
export interface WatchOptions {
  /**
   * Time between two checks of a sandbox, in milliseconds. Default: 5 s. All sandboxes together are checked at most 100
   * times a second, so that with more than 500 of them it becomes longer.
   */
  readonly intervalMs?: number | undefined;
  /** Ends the watch. */
  readonly signal: AbortSignal;
  /** Must not throw. */
  readonly onEvent?: ((event: WatchEvent) => void) | undefined;
}

/** Checks all running sandboxes until it is aborted, and acts; a slow one delays no other. Never rejects. */
export async function watch(node: NodeParts, options: WatchOptions): Promise<void> {
  const { intervalMs = DEFAULT_POLL_MS, signal, onEvent = () => undefined } = options;
  const watchers = new Map<string, Watcher>();
  while (!signal.aborted) {
    const names = runningNames(node, onEvent);
    for (const name of names) if (!watchers.has(name)) watchers.set(name, new Watcher(node, name, onEvent));
    for (const [name, watcher] of watchers) {
      if (!names.has(name) && watcher.close()) watchers.delete(name);
    }
    const due = [...watchers].filter(([name]) => names.has(name));
    await round(node, due, intervalMs, signal);
  }
  await Promise.all([...watchers.values()].map((watcher) => watcher.end()));
}

/**
 * Checks each sandbox once, at its own time within the interval. All at once would be as many connections and answers
 * at once, which this thread has milliseconds of work with each. A round that is late is not caught up with.
 */
async function round(
  node: NodeParts,
  due: readonly (readonly [name: string, watcher: Watcher])[],
  intervalMs: number,
  signal: AbortSignal,
): Promise<void> {
  const listed = await listedFor(node, due);
  const roundMs = Math.max(intervalMs, (due.length * 1_000) / MOST_A_SECOND);
  const slots = Math.max(1, Math.floor(roundMs / SLOT_MS));
  const slotMs = roundMs / slots;
  const slotOf = (at: number): number => Math.floor((at * slots) / due.length);
  let slot = 0;
  const rest = async (until: number): Promise<void> => {
    if (until > slot) await pause((until - slot) * slotMs, undefined, { signal }).catch(() => undefined);
    slot = until;
  };
  for (const [at, [name, watcher]] of due.entries()) {
    await rest(slotOf(at));
    if (signal.aborted) return;
    watcher.look(listed?.get(name));
  }
  await rest(slots);
}

/** The instances by the names of their sandboxes, if many connections are to be made; undefined: each asks itself. */
async function listedFor(
  node: NodeParts,
  due: readonly (readonly [name: string, watcher: Watcher])[],
): Promise<ReadonlyMap<string, Instance> | undefined> {
  if (due.filter(([, watcher]) => watcher.needsConnection).length <= FEW_DIALS) return undefined;
  const instances = await node.instances.listed().catch(() => undefined);
  if (instances === undefined) return undefined;
  return new Map(
    due.flatMap(([name]) => {
      const instance = instances.get(running(node.journal.get(name))?.instanceId ?? "");
      return instance === undefined ? [] : [[name, instance]];
    }),
  );
}

function runningNames(node: Needs<"journal">, onEvent: (event: WatchEvent) => void): ReadonlySet<string> {
  try {
    return new Set(node.journal.all().flatMap((entry) => running(entry)?.name ?? []));
  } catch (error) {
    onEvent({ name: "", event: "failed", message: messageOf(error) });
    return new Set();
  }
}
