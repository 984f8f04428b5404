import { setTimeout as pause } from "node:timers/promises";
import type { DoneDuties } from "../../client/index.ts";
import { currentSignal, type Instance, SandboxError, sandboxError, throwIfAborted } from "../substrate/index.ts";
import {
  bounded,
  Gate,
  type JournalEntry,
  type Leave,
  type NodeParts,
  type SandboxEntry,
  whileUp,
} from "../state/index.ts";
import { sweepEntry } from "./sweep-entry.ts";
import type { Report } from "./sweep-report.ts";
import type { NodeResources } from "./resources.ts";

/**
 * Deadline of the first attempt to reach an agent. It can be generous, because an attempt blocks other attempts only
 * for its first half second (`Dials`). It should be generous, because an agent on a busy host may answer late.
 */
const FIRST_ATTEMPT_MS = 10_000;
/**
 * The second and later attempts to reach a silent agent: the deadline of each attempt, and the pause between them. The
 * pause is long, because an attempt is expensive: it makes two connections.
 */
const LATER_ATTEMPT_MS = 10_000;
const LATER_PAUSE_MS = 5_000;
/** How many silent agents are waited for concurrently. Waiting for an agent takes only a timer and a connection. */
const SILENT_AT_A_TIME = 256;
/**
 * How many POST_RESTORE hooks run concurrently. The limit can be high, because a hook uses the guest's CPU while this
 * process only waits for it.
 */
const HOOKS_AT_A_TIME = 128;
/**
 * Limit on the restores that are completed concurrently (connection, hook and Health).
 *
 * Normally there are 16 places. A restore frees its place after a quarter of a second even if it is not complete, so
 * that long hooks do not delay other sandboxes.
 *
 * While this process is starved of CPU time, there are only four places, which are freed after about 8 s. With more
 * concurrent restores, connections would miss their deadlines, and supervising the restores (`whileUp`) would use up
 * the CPU time.
 */
const COMPLETIONS = { places: 16, placesIfStarved: 4, limitMs: 250, starvedShare: 0.125 };

/** Whether a sandbox may be running although its session is frozen or its restore steps have not been carried out. */
export function mayBeFrozen(entry: JournalEntry): boolean {
  return entry.kind === "sandbox" && entry.phase === "ready" && entry.runEpochMs === undefined;
}

/**
 * Sorts sandboxes by the time that is left until their sessions thaw, the shortest time first. For sandboxes that an
 * older version froze, this time is not known, so they come first.
 */
export function byTimeLeft(one: JournalEntry, other: JournalEntry): number {
  return thawsAtMs(one) - thawsAtMs(other);
}

function thawsAtMs(entry: JournalEntry): number {
  return (entry.kind === "sandbox" ? entry.thawsAtMs : undefined) ?? 0;
}

/** A sandbox whose restore steps are done, and its journal entry as it was at that time. */
interface Safe {
  readonly entry: SandboxEntry;
  readonly instance: Instance;
  readonly done: DoneDuties;
}

/**
 * How many interrupted suspensions this process waits for concurrently. A suspension may take the daemon up to 75 s,
 * during which this process polls the daemon four times a second.
 */
const ASKED_AT_A_TIME = 64;

/**
 * Runs the restore steps of sandboxes before their sessions thaw by themselves. The first pass runs only the restore
 * steps, in every sandbox whose agent answers. The second pass runs the POST_RESTORE hooks and calls Health, which
 * needs a second connection to each sandbox.
 *
 * A silent agent never delays other sandboxes. The number of concurrent attempts is limited, but an attempt counts only
 * for its first half second. If the agent has not answered after ten seconds, its sandbox is tried again after all
 * others. In that last attempt, the agent gets the node's usual time to answer.
 */
export class Frozen {
  readonly #node: NodeParts;
  readonly #resources: NodeResources;
  /**
   * The journal's entries, read before the instances were listed. An entry is unchanged if the journal still returns
   * the same object.
   */
  readonly #before: ReadonlyMap<string, JournalEntry>;
  readonly #report: Report;
  readonly #onDone: () => void;
  readonly #hooks = new Gate({ places: HOOKS_AT_A_TIME });
  readonly #completions = new Gate(COMPLETIONS);
  readonly #silent: string[] = [];
  /** Names of the sandboxes whose restore steps are done. */
  readonly #safe = new Set<string>();
  /** Resolves when all sandboxes that answer have run their restore steps. */
  readonly #areSafe: Promise<void>;
  #noteSafe: () => void = () => undefined;

  constructor(
    node: NodeParts,
    resources: NodeResources,
    before: readonly JournalEntry[],
    report: Report,
    onDone: () => void,
  ) {
    this.#node = node;
    this.#resources = resources;
    this.#before = new Map(before.map((entry) => [entry.name, entry]));
    this.#report = report;
    this.#onDone = onDone;
    this.#areSafe = new Promise((resolve) => (this.#noteSafe = resolve));
  }

  /**
   * Restores the sandboxes whose agents answer soon. Their restore steps begin in the given order. Never rejects,
   * because failures are added to the report.
   */
  async quick(entries: readonly JournalEntry[]): Promise<void> {
    const begun: Promise<void>[] = [];
    const judged: Promise<void>[] = [];
    for (const { name } of entries) {
      let onLeft: () => void = () => undefined;
      const left = new Promise<void>((resolve) => (onLeft = resolve));
      const { first, whole } = this.#attempt(name, await this.#node.dials.enter(onLeft));
      begun.push(whole);
      judged.push(Promise.race([first, left]));
    }
    await Promise.all(judged);
    this.#noteSafe();
    await Promise.all(begun);
  }

  /**
   * Restores sandboxes for which an earlier process requested a suspension, but ended before it could resume them.
   * Waits until the daemon has completed each suspension. Never rejects.
   */
  async asked(entries: readonly JournalEntry[]): Promise<void> {
    await bounded(entries, ASKED_AT_A_TIME, ({ name }) => this.#attempt(name, undefined).whole);
  }

  /** Restores the sandboxes whose agents have not answered so far, or reports that they failed. Never rejects. */
  async silent(): Promise<void> {
    await bounded(this.#silent, SILENT_AT_A_TIME, async (name) => {
      await this.#one(name, async (sandbox, instance) => {
        const done = await this.#reached(sandbox, instance);
        await this.#complete(this.#node.journal.sandbox(name), instance, done);
      });
      this.#onDone();
    });
  }

  #attempt(name: string, place: Leave | undefined): { readonly first: Promise<void>; readonly whole: Promise<void> } {
    let safe: Safe | "silent" | undefined;
    const first = this.#one(name, async (entry, instance) => {
      safe = await this.#makeSafe(entry, instance, place ?? (await this.#node.dials.enter()));
    }).then(() => place?.());
    const whole = first.then(async () => {
      if (safe === "silent") {
        this.#silent.push(name);
        return;
      }
      if (safe !== undefined) await this.#rest(name, safe);
      this.#onDone();
    });
    return { first, whole };
  }

  /** Runs an action on a sandbox whose restore steps are not done. If the action fails, reports the failure. */
  async #one(name: string, action: (entry: SandboxEntry, instance: Instance) => Promise<void>): Promise<void> {
    const { operations, journal } = this.#node;
    if (operations.isBusy(name)) return;
    await this.#report.attempt(name, () =>
      operations.exclusive("sweep", name, async () => {
        const found = this.#listed(name) ?? (await sweepEntry(this.#node, name, this.#report));
        if (found === undefined) return;
        try {
          await action(found.entry, found.instance);
        } catch (error) {
          this.#noteIfLate(journal.get(name));
          throw error;
        }
      }),
    );
  }

  /**
   * Returns the entry of a sandbox, and its instance from the sweep's listing. Returns undefined if the caller must
   * query the daemon, because the listing is not enough: the instance was not running, the entry has changed since, or
   * the outcome of a suspension or a publication is not known.
   */
  #listed(name: string): { readonly entry: SandboxEntry; readonly instance: Instance } | undefined {
    const entry = this.#node.journal.get(name);
    if (entry?.kind !== "sandbox" || this.#before.get(name) !== entry || !mayBeFrozen(entry)) return undefined;
    const instance = this.#resources.instances.get(entry.instanceId ?? "");
    if (entry.asked !== undefined || instance?.state !== "Running") return undefined;
    return (entry.published ?? []).every(({ ingressId }) => ingressId !== undefined) ? { entry, instance } : undefined;
  }

  /** Runs the restore steps of a sandbox. Returns "silent" if the sandbox's agent does not answer. */
  async #makeSafe(entry: SandboxEntry, instance: Instance, leave: Leave): Promise<Safe | "silent"> {
    const { guests, journal } = this.#node;
    const timeoutMs = Math.min(FIRST_ATTEMPT_MS, guests.patience.reachTimeoutMs);
    try {
      const done = await guests.firstDuties("sweep", entry, { known: instance, timeoutMs, onAnswered: leave });
      this.#noteSafety(entry.name, done);
      return { entry: journal.sandbox(entry.name), instance, done };
    } catch (error) {
      const failure = sandboxError(error);
      if (failure instanceof SandboxError && failure.code === "AGENT_UNREACHABLE") return "silent";
      throw error;
    } finally {
      leave();
    }
  }

  /**
   * Completes the restore of a sandbox. First waits until the restore steps are done in every sandbox whose agent
   * answers. Repeats this sandbox's restore steps if its journal entry has changed since they ran.
   */
  async #rest(name: string, { entry, instance, done }: Safe): Promise<void> {
    await this.#areSafe;
    const leaveHooks = await this.#hooks.enter();
    const leave = await this.#completions.enter();
    try {
      await this.#one(name, async (found, listed) => {
        if (found === entry) await this.#complete(entry, instance, done);
        else await this.#complete(found, listed);
      });
    } finally {
      leave();
      leaveHooks();
    }
  }

  /**
   * Runs the restore steps of a sandbox whose agent has not answered the first attempt. Makes further attempts until
   * the agent answers or the node's `reachTimeoutMs` is over. Rejects with AGENT_UNREACHABLE, or with AGENT_ENDED if
   * the sandbox's instance is off.
   */
  #reached(entry: SandboxEntry, known: Instance): Promise<DoneDuties> {
    const { guests, instances, dials } = this.#node;
    const untilMs = performance.now() + guests.patience.reachTimeoutMs;
    // Use random pauses: all silent sandboxes begin to wait at the same time, and with equal pauses they would query
    // the daemon simultaneously.
    const pollIntervalMs = LATER_PAUSE_MS * (1 + Math.random());
    const subject = { ...instances.subject(entry), pollIntervalMs };
    return whileUp(subject, async (signal) => {
      for (;;) {
        const leave = await dials.enter();
        const leftMs = Math.max(1, untilMs - performance.now());
        const options = { known, timeoutMs: Math.min(LATER_ATTEMPT_MS, leftMs), onAnswered: leave };
        try {
          const done = await guests.firstDuties("sweep", entry, options);
          this.#noteSafety(entry.name, done);
          return done;
        } catch (error) {
          throwIfAborted();
          if (signal.aborted || performance.now() + LATER_PAUSE_MS >= untilMs) throw error;
        } finally {
          leave();
        }
        await pause(LATER_PAUSE_MS, undefined, { signal: currentSignal(signal) }).catch(() => undefined);
      }
    });
  }

  /**
   * Completes a restore, and adds its result to the report.
   *
   * @param done result of the restore steps; undefined if they have not run yet
   */
  async #complete(entry: SandboxEntry, known: Instance, done?: DoneDuties): Promise<void> {
    const { name } = entry;
    const leave = await this.#node.dials.enter();
    // Let one connection attempt take the whole `reachTimeoutMs`, the time that an agent has to answer. A handshake is
    // slow here only if this process is starved of CPU time, and a second attempt would repeat the whole handshake.
    const connectTimeoutMs = this.#node.guests.patience.reachTimeoutMs;
    const options = { known, done, connectTimeoutMs, onAnswered: leave, pollIntervalMs: LATER_PAUSE_MS };
    const { warnings, clockErrorMs } = await this.#node.guests.awaken("sweep", entry, options).finally(leave);
    this.#report.awakened.push(name);
    this.#report.warnings.push(...warnings.map((warning) => ({ ...warning, name, clockErrorMs })));
    if (done === undefined && warnings.some(({ code }) => code === "THAWED_WITHOUT_DUTIES"))
      this.#report.late.push(name);
  }

  #noteSafety(name: string, { duties }: DoneDuties): void {
    this.#safe.add(name);
    if (duties.thawedWithoutDuties) this.#report.late.push(name);
  }

  #noteIfLate(entry: JournalEntry | undefined): void {
    if (entry === undefined || !mayBeFrozen(entry) || this.#safe.has(entry.name)) return;
    const thawMs = thawsAtMs(entry);
    if (thawMs > 0 && thawMs <= Date.now()) this.#report.late.push(entry.name);
  }
}
