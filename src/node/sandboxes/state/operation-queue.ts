import { orAborted, SandboxError, sandboxError, throwIfAborted } from "../substrate/index.ts";
import type { Journal } from "./journal.ts";
import { polled } from "./polled.ts";

const DEFAULT_LOCK_WAIT_MS = 30_000;
const LOCK_PAUSE_MS = 100;

/** A step that an operation is about to begin. It is meant for displaying the operation's progress. */
export interface Step {
  readonly operation: string;
  /** Name of the sandbox or snapshot. */
  readonly name: string;
  readonly step: string;
  /** Present only for a step that uploads data: how many bytes are sent already, and how many there are. */
  readonly bytes?: { readonly sent: number; readonly total: number } | undefined;
}

/** Called before each step, to show progress. */
export type OnStep = (operation: string, name: string, step: string, bytes?: Step["bytes"]) => void;

/**
 * Serializes the operations on each sandbox and snapshot, among this process and others, and records what would remain
 * unfinished if this process ended now.
 */
export class OperationQueue {
  readonly #journal: Journal;
  readonly #step: OnStep;
  readonly #timeoutMs: number;
  /** For each name, what happens to the sandbox or snapshot if this process ends now. */
  readonly #atRisk = new Map<string, string>();
  /** The last operation on each name. The next operation on that name waits for it. */
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(journal: Journal, step: OnStep, timeoutMs: number = DEFAULT_LOCK_WAIT_MS) {
    this.#journal = journal;
    this.#step = step;
    this.#timeoutMs = timeoutMs;
  }

  /** What would remain unfinished or frozen until the next sweep if this process ended now. */
  get atRisk(): readonly string[] {
    return [...this.#atRisk].map(([name, why]) => `${name}: ${why}`);
  }

  /**
   * Sets the text that `atRisk` returns for a sandbox or snapshot: what happens to it if this process ends now. The
   * text is removed when the current operation on that name ends, or if `why` is undefined.
   */
  setRisk(name: string, why: string | undefined): void {
    if (why === undefined) this.#atRisk.delete(name);
    else this.#atRisk.set(name, why);
  }

  /**
   * Waits for a call that changes something at the substrate. Until the daemon answers, `atRisk` lists the sandbox or
   * snapshot, because nobody would know the outcome if this process ended.
   */
  async untilAnswered<Value>(name: string, call: () => Promise<Value>): Promise<Value> {
    const before = this.#atRisk.get(name);
    this.setRisk(name, before ?? "the daemon has not answered yet");
    try {
      return await call();
    } finally {
      this.setRisk(name, before);
    }
  }

  /**
   * Runs an operation on a sandbox or snapshot once all earlier operations on it have ended, in this process and in
   * others. Rejects with SandboxError, for example SANDBOX_BUSY if another process does not finish in time.
   */
  async exclusive<Value>(operation: string, name: string, action: () => Promise<Value>): Promise<Value> {
    const before = this.#last.get(name) ?? Promise.resolve();
    const turn = before.then(() => {
      throwIfAborted();
      return this.#locked(operation, name, action);
    });
    const ended = turn.catch(() => undefined);
    this.#last.set(name, ended);
    // An operation that is aborted before its turn stays in the queue, because the operations after it must still wait
    // for those before it.
    void ended.then(() => {
      if (this.#last.get(name) === ended) this.#last.delete(name);
    });
    try {
      await orAborted(before);
      return await turn;
    } catch (error) {
      throw sandboxError(error);
    }
  }

  /**
   * Whether a process is working on the sandbox or snapshot at the moment. If so, the entry was not left behind by a
   * crash.
   */
  isBusy(name: string): boolean {
    return this.#last.has(name) || this.#journal.holder(name) !== undefined;
  }

  async #locked<Value>(operation: string, name: string, action: () => Promise<Value>): Promise<Value> {
    let waitsFor: string | undefined;
    const isHeld = async (): Promise<boolean> => {
      const holder = await this.#journal.take(name, operation);
      if (holder === undefined) return false;
      const since = new Date(holder.sinceMs).toISOString();
      const other = `${holder.operation} of process ${holder.pid}, which began at ${since}`;
      if (waitsFor === undefined) this.#step(operation, name, `wait for the ${other}`);
      waitsFor = other;
      return true;
    };
    if (await polled(isHeld, (held) => !held, { pauseMs: LOCK_PAUSE_MS, limitMs: this.#timeoutMs }))
      throw new SandboxError("SANDBOX_BUSY", `${name} has been busy for ${this.#timeoutMs} ms with the ${waitsFor}`);
    try {
      return await action();
    } finally {
      this.setRisk(name, undefined);
      try {
        await this.#journal.release(name);
      } catch {
        // The lock cannot be released, for example because the disk is full. This process then holds the lock until it
        // ends.
      }
    }
  }
}
