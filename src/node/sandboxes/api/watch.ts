import { setTimeout as pause } from "node:timers/promises";
import { messageOf } from "../../../shared/errors.ts";
import type { DaemonParts, NodeParts } from "../state/index.ts";
import { checkDuration, type Instance } from "../substrate/index.ts";
import { running, type WatchEvent, Watcher } from "./watcher.ts";

const DEFAULT_POLL_MS = 5_000;
/** Limit on the checks per second of all sandboxes together. A check takes 0.5 to 1 ms of this thread. */
const MOST_A_SECOND = 100;
/**
 * Checks that are due within this time are made together, because each turn of the event loop has a fixed cost, which
 * is then paid only once.
 */
const SLOT_MS = 100;
/**
 * If at most this many watchers need a new connection, each of them requests the address of its own sandbox. For more
 * connections, one listing of all addresses is cheaper.
 */
const FEW_DIALS = 4;

/** Options of `Sandboxes.watch`. */
export interface WatchOptions {
  /**
   * Time between two checks of a sandbox, in milliseconds. Default: 5 s. Over all sandboxes, at most 100 checks are
   * made per second. So with the default, the time becomes longer if there are more than 500 sandboxes.
   */
  readonly intervalMs?: number | undefined;
  /** Ends the watch when aborted. */
  readonly signal: AbortSignal;
  /** Receives each event of the watch. Must not throw. */
  readonly onEvent?: ((event: WatchEvent) => void) | undefined;
}

/**
 * Checks all running sandboxes and carries out the actions that are due, until the signal is aborted. A slow sandbox
 * does not delay the others. Rejects only for an invalid `intervalMs`.
 */
export async function watch(node: NodeParts, options: WatchOptions): Promise<void> {
  const { intervalMs = DEFAULT_POLL_MS, signal, onEvent = () => undefined } = options;
  checkDuration(intervalMs, "intervalMs");
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
 * Checks each sandbox once. The checks are spread evenly over the interval: if all began at the same moment, this
 * thread would need seconds for their connections and answers. If a round has taken too long, no extra round is made to
 * catch up.
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
    watcher.check(listed?.get(name));
  }
  await rest(slots);
}

/**
 * Lists the instances of this node in one request. Returns undefined if only a few watchers need a connection, or if
 * the request fails. Each watcher then requests its own instance.
 */
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

function runningNames(node: DaemonParts, onEvent: (event: WatchEvent) => void): ReadonlySet<string> {
  try {
    return new Set(node.journal.all().flatMap((entry) => running(entry)?.name ?? []));
  } catch (error) {
    onEvent({ name: "", event: "failed", message: messageOf(error) });
    return new Set();
  }
}
