import { setTimeout as pause } from "node:timers/promises";
import type { GuestClient } from "../../client/index.ts";
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

/** Duties at a time. With more, the calls that carry the time are late on a busy processor, and must be repeated. */
const DUTIES_AT_A_TIME = 12;
/** A first attempt to reach an agent: one that can answer does so within milliseconds. */
const FIRST_ATTEMPT_MS = 5_000;
/** Later attempts to reach an agent that was silent, and the pause between two: each costs two connections. */
const LATER_ATTEMPT_MS = 10_000;
const LATER_PAUSE_MS = 5_000;
/** Silent agents that are waited for at a time. They take a timer and a connection each. */
const SILENT_AT_A_TIME = 256;

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

/** What the daemon may still be asked to do with a sandbox takes up to 75 s; it is asked four times a second. */
const ASKED_AT_A_TIME = 64;

/**
 * Has sandboxes do their duties before their sessions thaw by themselves. Those that answer are never kept waiting by
 * those that do not: an agent that is silent for half a second gives its place to the next one, after five seconds it
 * is put behind all others, and is then waited for as long as the node waits for any agent.
 */
export class Frozen {
  readonly #node: NodeParts;
  readonly #things: Things;
  /** The entries from before the listing: one that is the same object now has not changed since. */
  readonly #before: ReadonlyMap<string, JournalEntry>;
  readonly #report: Report;
  readonly #onDone: () => void;
  readonly #duties = new Gate(DUTIES_AT_A_TIME);
  readonly #silent: string[] = [];

  constructor(node: NodeParts, things: Things, before: readonly JournalEntry[], report: Report, onDone: () => void) {
    this.#node = node;
    this.#things = things;
    this.#before = new Map(before.map((entry) => [entry.name, entry]));
    this.#report = report;
    this.#onDone = onDone;
  }

  /** Awakens those that answer soon, in the order that they have. Never rejects, as the next two. */
  async quick(entries: readonly JournalEntry[]): Promise<void> {
    const begun: Promise<void>[] = [];
    for (const { name } of entries) begun.push(this.#attempt(name, await this.#node.dials.enter()));
    await Promise.all(begun);
  }

  /** The same for those that an earlier process has asked the daemon to suspend, once the daemon has done so. */
  async asked(entries: readonly JournalEntry[]): Promise<void> {
    await bounded(entries, ASKED_AT_A_TIME, ({ name }) => this.#attempt(name, undefined));
  }

  /** Awakens those that have not answered yet, or gives them up. */
  async silent(): Promise<void> {
    await bounded(this.#silent, SILENT_AT_A_TIME, async (name) => {
      await this.#one(name, async (sandbox, instance) => {
        await this.#awaken(sandbox, instance, await this.#reached(sandbox, instance));
      });
      this.#onDone();
    });
  }

  async #attempt(name: string, place: Leave | undefined): Promise<void> {
    let isSilent = false;
    await this.#one(name, async (sandbox, instance) => {
      const leave = place ?? (await this.#node.dials.enter());
      const client = await this.#answered(sandbox, instance, leave);
      isSilent = client === undefined;
      if (client !== undefined) await this.#awaken(sandbox, instance, client);
    });
    place?.();
    if (isSilent) this.#silent.push(name);
    else this.#onDone();
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

  /** A client whose agent answers at once; undefined: it does not. */
  async #answered(entry: SandboxEntry, known: Instance, leave: Leave): Promise<GuestClient | undefined> {
    try {
      return await this.#node.guests.answered(entry, { known, timeoutMs: FIRST_ATTEMPT_MS });
    } catch (error) {
      const failure = sandboxError(error);
      if (failure instanceof SandboxError && failure.code === "AGENT_UNREACHABLE") return undefined;
      throw error;
    } finally {
      leave();
    }
  }

  /**
   * A client of an agent that was silent before. Rejects with AGENT_UNREACHABLE, or AGENT_ENDED where its instance is
   * off.
   */
  #reached(entry: SandboxEntry, known: Instance): Promise<GuestClient> {
    const { guests, instances, dials } = this.#node;
    const untilMs = performance.now() + guests.patience.reachTimeoutMs;
    const subject = { ...instances.subject(entry), lookPauseMs: LATER_PAUSE_MS };
    return whileUp(subject, async (signal) => {
      for (;;) {
        const leftMs = Math.max(1, untilMs - performance.now());
        const call = { known, timeoutMs: Math.min(LATER_ATTEMPT_MS, leftMs), signal };
        try {
          return await dials.run(() => guests.answered(entry, call));
        } catch (error) {
          if (signal.aborted || performance.now() + LATER_PAUSE_MS >= untilMs) throw error;
        }
        await pause(LATER_PAUSE_MS, undefined, { signal }).catch(() => undefined);
      }
    });
  }

  async #awaken(entry: SandboxEntry, known: Instance, client: GuestClient): Promise<void> {
    const leave = await this.#duties.enter();
    try {
      // A hook may take long, and its guest is safe by then.
      const options = { known, client, onDutiesDone: leave };
      const { warnings, clockErrorMs } = await this.#node.guests.awaken("sweep", entry, options);
      const { name } = entry;
      this.#report.awakened.push(name);
      this.#report.warnings.push(...warnings.map((warning) => ({ ...warning, name, clockErrorMs })));
      if (warnings.some(({ code }) => code === "THAWED_WITHOUT_DUTIES")) this.#report.late.push(name);
    } finally {
      leave();
    }
  }

  #noteIfLate(entry: JournalEntry | undefined): void {
    if (entry === undefined || !mayBeFrozen(entry)) return;
    const thawMs = thawsAtMs(entry);
    if (thawMs > 0 && thawMs <= Date.now()) this.#report.late.push(entry.name);
  }
}
