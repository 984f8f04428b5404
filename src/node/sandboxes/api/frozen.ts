import { setTimeout as pause } from "node:timers/promises";
import type { DoneDuties } from "../../client/index.ts";
import { type Instance, SandboxError, sandboxError } from "../substrate/index.ts";
import {
  bounded,
  Gate,
  type JournalEntry,
  type Leave,
  type NodeParts,
  type SandboxEntry,
  whileUp,
} from "../node/index.ts";
import { sweepEntry } from "./sweep-entry.ts";
import type { Report } from "./sweep-report.ts";
import type { Things } from "./things.ts";

/** A first attempt to reach an agent. It is in nobody's way after half a second, so that a busy host's may take long. */
const FIRST_ATTEMPT_MS = 10_000;
/** Later attempts to reach an agent that was silent, and the pause between two: each costs two connections. */
const LATER_ATTEMPT_MS = 10_000;
const LATER_PAUSE_MS = 5_000;
/** Silent agents that are waited for at a time. They take a timer and a connection each. */
const SILENT_AT_A_TIME = 256;
/** POST_RESTORE hooks at a time: a hook takes the guest's processor, and this process only waits for it. */
const HOOKS_AT_A_TIME = 128;

/** Whether a sandbox may run with a frozen session, or without its duties. */
export function mayBeFrozen(entry: JournalEntry): boolean {
  return entry.kind === "sandbox" && entry.phase === "ready" && entry.runEpochMs === undefined;
}

/** The order of duties: by the time that is left, the least first. Nothing is known of what an older version froze. */
export function byTimeLeft(one: JournalEntry, other: JournalEntry): number {
  return thawsAtMs(one) - thawsAtMs(other);
}

function thawsAtMs(entry: JournalEntry): number {
  return (entry.kind === "sandbox" ? entry.thawsAtMs : undefined) ?? 0;
}

/** A sandbox that has done its duties, and its entry since then. */
interface Safe {
  readonly entry: SandboxEntry;
  readonly instance: Instance;
  readonly done: DoneDuties;
}

/** What the daemon may still be asked to do with a sandbox takes up to 75 s; it is asked four times a second. */
const ASKED_AT_A_TIME = 64;

/**
 * Has sandboxes do their duties before their sessions thaw by themselves. All of them do no more than that at first.
 * POST_RESTORE and Health, which need a second connection, follow when none waits for its duties any more. Those that
 * answer are never kept waiting by those that do not: an agent that is silent for half a second gives its place to the
 * next one, after ten seconds it is put behind all others, and is then waited for as long as the node waits for any
 * agent.
 */
export class Frozen {
  readonly #node: NodeParts;
  readonly #things: Things;
  /** The entries from before the listing: one that is the same object now has not changed since. */
  readonly #before: ReadonlyMap<string, JournalEntry>;
  readonly #report: Report;
  readonly #onDone: () => void;
  readonly #hooks = new Gate(HOOKS_AT_A_TIME);
  readonly #silent: string[] = [];
  /** Names of those that have done their duties. */
  readonly #safe = new Set<string>();
  /** Resolved when every sandbox that answers has done its duties. */
  readonly #areSafe: Promise<void>;
  #noteSafe: () => void = () => undefined;

  constructor(node: NodeParts, things: Things, before: readonly JournalEntry[], report: Report, onDone: () => void) {
    this.#node = node;
    this.#things = things;
    this.#before = new Map(before.map((entry) => [entry.name, entry]));
    this.#report = report;
    this.#onDone = onDone;
    this.#areSafe = new Promise((resolve) => (this.#noteSafe = resolve));
  }

  /** Awakens those that answer soon; they do their duties in the order that they have. Never rejects, as the next two. */
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

  /** The same for those that an earlier process has asked the daemon to suspend, once the daemon has done so. */
  async asked(entries: readonly JournalEntry[]): Promise<void> {
    await bounded(entries, ASKED_AT_A_TIME, ({ name }) => this.#attempt(name, undefined).whole);
  }

  /** Awakens those that have not answered yet, or gives them up. */
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

  /** Works on one sandbox that runs without its duties, and reports its failure. */
  async #one(name: string, action: (entry: SandboxEntry, instance: Instance) => Promise<void>): Promise<void> {
    const { turns, journal } = this.#node;
    if (turns.isBusy(name)) return;
    await this.#report.attempt(name, () =>
      turns.alone("sweep", name, async () => {
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

  /** What the listing says of a sandbox that it shows running, if nobody has worked on that since. */
  #listed(name: string): { readonly entry: SandboxEntry; readonly instance: Instance } | undefined {
    const entry = this.#node.journal.get(name);
    if (entry?.kind !== "sandbox" || this.#before.get(name) !== entry || !mayBeFrozen(entry)) return undefined;
    const instance = this.#things.instances.get(entry.instanceId ?? "");
    if (entry.asked !== undefined || instance?.state !== "Running") return undefined;
    return (entry.published ?? []).every(({ ingressId }) => ingressId !== undefined) ? { entry, instance } : undefined;
  }

  /** Has one do its duties, unless its agent is silent. */
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

  /** What follows the duties of one, once all are safe, unless somebody has worked on it in the meantime. */
  async #rest(name: string, { entry, instance, done }: Safe): Promise<void> {
    await this.#areSafe;
    const leave = await this.#hooks.enter();
    try {
      await this.#one(name, async (found, listed) => {
        if (found === entry) await this.#complete(entry, instance, done);
        else await this.#complete(found, listed);
      });
    } finally {
      leave();
    }
  }

  /**
   * Has an agent that was silent before do its duties. Rejects with AGENT_UNREACHABLE, or AGENT_ENDED where its
   * instance is off.
   */
  #reached(entry: SandboxEntry, known: Instance): Promise<DoneDuties> {
    const { guests, instances, dials } = this.#node;
    const untilMs = performance.now() + guests.patience.reachTimeoutMs;
    const subject = { ...instances.subject(entry), lookPauseMs: LATER_PAUSE_MS };
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
          if (signal.aborted || performance.now() + LATER_PAUSE_MS >= untilMs) throw error;
        } finally {
          leave();
        }
        await pause(LATER_PAUSE_MS, undefined, { signal }).catch(() => undefined);
      }
    });
  }

  /** @param done its duties; undefined: they are not done yet */
  async #complete(entry: SandboxEntry, known: Instance, done?: DoneDuties): Promise<void> {
    const { name } = entry;
    const leave = await this.#node.dials.enter();
    const options = { known, done, onAnswered: leave, lookPauseMs: LATER_PAUSE_MS };
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
