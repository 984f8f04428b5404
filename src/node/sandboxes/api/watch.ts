import { setTimeout as pause } from "node:timers/promises";
import { messageOf } from "../../../shared/errors.ts";
import type { GuestClient, Health } from "../../client/index.ts";
import { type JournalEntry, type Needs, type NodeParts, ready, type SandboxEntry } from "../node/index.ts";
import { discard, standby, stop } from "../operations/index.ts";
import { SandboxError, sandboxError } from "../substrate/index.ts";

const DEFAULT_POLL_MS = 5_000;
const HEALTH_MS = 5_000;

/** An observation or action of the watch. */
export interface WatchEvent {
  readonly name: string;
  /** What was done ("standby", "stop", "remove"), whether the agent answers, or that one of these failed. */
  readonly event: "standby" | "stop" | "remove" | "unreachable" | "reachable" | "failed";
  readonly message: string;
}

/** How to watch. */
export interface WatchOptions {
  /** Time between two looks at a sandbox, in milliseconds. Default: 5 s. */
  readonly intervalMs?: number | undefined;
  /** Ends the watch. */
  readonly signal: AbortSignal;
  /** Must not throw. */
  readonly onEvent?: ((event: WatchEvent) => void) | undefined;
}

/** What to do with a sandbox, and why. */
export interface Verdict {
  readonly action: "standby" | "stop" | "remove";
  readonly because: string;
}

type Watched = Pick<SandboxEntry, "runEpochMs" | "ttlMs" | "idleAction">;
type Stamps = Pick<
  Health,
  "guestTime" | "guestTimeNanos" | "lastUserActivity" | "lastUserActivityNanos" | "idleDeclared" | "idleDeclaredNanos"
>;

/**
 * Decides what to do by an answer of Health. Its stamps are by the guest's clock; the present difference of the clocks
 * converts them to the host's clock, by which the run epoch is. A declaration of idleness counts if it is later than
 * the run epoch and than the user's last activity. For the TTL the run epoch counts as activity.
 */
export function decide({ runEpochMs, ttlMs, idleAction }: Watched, stamps: Stamps, nowMs: number): Verdict | undefined {
  if (runEpochMs === undefined) return undefined;
  const aheadMs = (millisecondsOf(stamps.guestTime, stamps.guestTimeNanos) ?? nowMs) - nowMs;
  const activityMs = (millisecondsOf(stamps.lastUserActivity, stamps.lastUserActivityNanos) ?? 0) - aheadMs;
  const quietMs = nowMs - Math.max(activityMs, runEpochMs);
  if (ttlMs !== undefined && quietMs >= ttlMs) {
    return { action: "remove", because: `its user has done nothing for ${Math.floor(quietMs)} ms` };
  }
  const declaredMs = millisecondsOf(stamps.idleDeclared, stamps.idleDeclaredNanos);
  if (idleAction === "none" || declaredMs === undefined) return undefined;
  const idleMs = declaredMs - aheadMs;
  return idleMs > runEpochMs && idleMs >= activityMs
    ? { action: idleAction, because: "its workload has declared itself idle" }
    : undefined;
}

function millisecondsOf(time: Date | undefined, nanos: number): number | undefined {
  return time && Math.floor(time.getTime() / 1_000) * 1_000 + nanos / 1e6;
}

/** Looks at all running sandboxes until it is aborted, and acts; a slow one delays no other. Never rejects. */
export async function watch(node: NodeParts, options: WatchOptions): Promise<void> {
  const { intervalMs = DEFAULT_POLL_MS, signal, onEvent = () => undefined } = options;
  const watchers = new Map<string, Watcher>();
  while (!signal.aborted) {
    const names = runningNames(node, onEvent);
    for (const name of names) {
      const watcher = watchers.get(name) ?? new Watcher(node, name, onEvent);
      watchers.set(name, watcher);
      watcher.look();
    }
    for (const [name, watcher] of watchers) {
      if (!names.has(name) && watcher.close()) watchers.delete(name);
    }
    await pause(intervalMs, undefined, { signal }).catch(() => undefined);
  }
  await Promise.all([...watchers.values()].map((watcher) => watcher.end()));
}

function runningNames(node: Needs<"journal">, onEvent: (event: WatchEvent) => void): ReadonlySet<string> {
  try {
    return new Set(node.journal.all().flatMap((entry) => running(entry)?.name ?? []));
  } catch (error) {
    onEvent({ name: "", event: "failed", message: messageOf(error) });
    return new Set();
  }
}

/** The entry of a sandbox that runs and has done its duties; undefined for any other. */
function running(entry: JournalEntry | undefined): SandboxEntry | undefined {
  if (entry?.kind !== "sandbox" || entry.phase !== "ready" || entry.runEpochMs === undefined) return undefined;
  return entry;
}

/** Looks at one sandbox, over one connection while that lasts. */
class Watcher {
  readonly #node: NodeParts;
  readonly #name: string;
  readonly #onEvent: (event: WatchEvent) => void;
  #client: GuestClient | undefined;
  #isReachable = true;
  #looking: Promise<void> | undefined;

  constructor(node: NodeParts, name: string, onEvent: (event: WatchEvent) => void) {
    this.#node = node;
    this.#name = name;
    this.#onEvent = onEvent;
  }

  /** Looks once, unless the last look still runs or a process works on the sandbox. */
  look(): void {
    if (this.#looking !== undefined || this.#node.turns.isBusy(this.#name)) return;
    this.#looking = this.#look().finally(() => (this.#looking = undefined));
  }

  /** Closes the connection. False: a look still runs, and may connect again. */
  close(): boolean {
    this.#client?.close();
    this.#client = undefined;
    return this.#looking === undefined;
  }

  /** Resolves when its last look is over. */
  async end(): Promise<void> {
    await this.#looking;
    this.close();
  }

  async #look(): Promise<void> {
    try {
      if ((await this.#verdict()) !== undefined) await this.#node.turns.alone("watch", this.#name, () => this.#act());
    } catch (error) {
      // Its user works on it; the next look decides again.
      if (error instanceof SandboxError && error.code === "SANDBOX_BUSY") return;
      this.#tell("failed", messageOf(sandboxError(error)));
    }
  }

  /** Looks again once nobody works on the sandbox: its user may have come back. */
  async #act(): Promise<void> {
    const verdict = await this.#verdict();
    if (verdict === undefined) return;
    const entry = ready(this.#node.journal.sandbox(this.#name));
    this.close();
    if (verdict.action === "remove") await discard(this.#node, "watch", entry);
    else if (verdict.action === "stop") {
      const { warnings } = await stop(this.#node, entry, "watch");
      this.#tell("stop", [verdict.because, ...warnings.map(({ message }) => message)].join("; "));
      return;
    } else if (verdict.action === "standby") {
      const { warnings } = await standby(this.#node, entry, {}, "watch");
      this.#tell(
        "standby",
        [verdict.because, ...warnings.map(({ code, message }) => `${message} [${code}]`)].join("; "),
      );
      return;
    }
    this.#tell(verdict.action, verdict.because);
  }

  async #verdict(): Promise<Verdict | undefined> {
    const entry = running(this.#node.journal.get(this.#name));
    if (entry === undefined) return undefined;
    try {
      this.#client ??= await this.#node.guests.dial(entry);
      const health = await this.#client.health({ timeoutMs: HEALTH_MS });
      if (!this.#isReachable) this.#tell("reachable", "it answers again");
      this.#isReachable = true;
      return decide(entry, health, Date.now());
    } catch (error) {
      this.close();
      // Its user may have suspended, stopped or removed it meanwhile.
      if (running(this.#node.journal.get(this.#name))?.runEpochMs !== entry.runEpochMs) return undefined;
      if (this.#isReachable) this.#tell("unreachable", messageOf(sandboxError(error)));
      this.#isReachable = false;
      return undefined;
    }
  }

  #tell(event: WatchEvent["event"], message: string): void {
    this.#onEvent({ name: this.#name, event, message });
  }
}
