import { setTimeout as pause } from "node:timers/promises";
import { messageOf } from "../../../shared/errors.ts";
import { type GuestClient, GuestError, type Health } from "../../client/index.ts";
import { type JournalEntry, type NodeParts, ready, type SandboxEntry } from "../node/index.ts";
import { discard, standby, stop } from "../operations/index.ts";
import { type Instance, SandboxError, sandboxError } from "../substrate/index.ts";
import { decide, type Verdict } from "./verdict.ts";

/** Time for the answer to a call on a connection that has answered before. */
const CALL_MS = 5_000;
/** Time for a connection and its first answer, from the moment that the connection is begun. */
const DIAL_MS = 10_000;
/** Before a sandbox that did not answer is asked once more. */
const CONFIRM_PAUSE_MS = 100;
/** Rounds of the watch that a sandbox is left out at most after it has failed several times in a row. */
const MOST_ROUNDS_OUT = 8;

/** An observation or action of the watch. */
export interface WatchEvent {
  readonly name: string;
  /** What was done ("standby", "stop", "remove"), whether the agent answers, or that one of these failed. */
  readonly event: "standby" | "stop" | "remove" | "unreachable" | "reachable" | "failed";
  readonly message: string;
}

/** The entry of a sandbox that runs and has done its duties; undefined for any other. */
export function running(entry: JournalEntry | undefined): SandboxEntry | undefined {
  if (entry?.kind !== "sandbox" || entry.phase !== "ready" || entry.runEpochMs === undefined) return undefined;
  return entry;
}

/** Checks one sandbox, over one connection while that lasts. */
export class Watcher {
  readonly #node: NodeParts;
  readonly #name: string;
  readonly #onEvent: (event: WatchEvent) => void;
  #client: GuestClient | undefined;
  /** Whether the agent has answered on this connection. One that is being made is kept for the next check. */
  #hasAnswered = false;
  #isReachable = true;
  /** Ends the questions of a check, and no action. */
  readonly #end = new AbortController();
  /** Checks that have failed in a row, and rounds in which the sandbox is left out because of them. */
  #failures = 0;
  #roundsOut = 0;
  #looking: Promise<void> | undefined;

  constructor(node: NodeParts, name: string, onEvent: (event: WatchEvent) => void) {
    this.#node = node;
    this.#name = name;
    this.#onEvent = onEvent;
  }

  get needsConnection(): boolean {
    return this.#client === undefined && this.#roundsOut === 0;
  }

  /**
   * Checks once, unless the last check still runs, a process works on the sandbox, or it has failed several times in a
   * row.
   *
   * @param known its instance, if it was just listed
   */
  look(known: Instance | undefined): void {
    if (this.#looking !== undefined || this.#node.turns.isBusy(this.#name)) return;
    if (this.#roundsOut > 0) {
      this.#roundsOut--;
      return;
    }
    this.#looking = this.#look(known).finally(() => (this.#looking = undefined));
  }

  /** Closes the connection. False: a check still runs, and may connect again. */
  close(): boolean {
    this.#client?.close();
    this.#client = undefined;
    this.#hasAnswered = false;
    return this.#looking === undefined;
  }

  /** Resolves when its last check is over: an action is completed, an answer is not waited for. */
  async end(): Promise<void> {
    this.#end.abort();
    await this.#looking;
    this.close();
  }

  async #look(known: Instance | undefined): Promise<void> {
    try {
      if ((await this.#verdict(known)) !== undefined)
        await this.#node.turns.alone("watch", this.#name, () => this.#act());
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

  async #verdict(known?: Instance): Promise<Verdict | undefined> {
    const entry = running(this.#node.journal.get(this.#name));
    if (entry === undefined) return undefined;
    const health = await this.#health(entry, known);
    return health && decide(entry, health, Date.now());
  }

  /** Health, if need be at the second attempt; undefined: it does not answer, or its user has suspended or removed it. */
  async #health(entry: SandboxEntry, known: Instance | undefined): Promise<Health | undefined> {
    const isSame = (): boolean => running(this.#node.journal.get(this.#name))?.runEpochMs === entry.runEpochMs;
    let failure: unknown;
    for (const instance of [known, undefined]) {
      try {
        const health = await this.#asked(entry, instance);
        if (!this.#isReachable) this.#tell("reachable", "it answers again");
        this.#isReachable = true;
        this.#failures = 0;
        return health;
      } catch (error) {
        failure = error;
      }
      // A connection in the making goes on; one that has failed may have had an address of before.
      if (!isLate(failure)) this.close();
      if (!isSame() || this.#end.signal.aborted) return undefined;
      await pause(CONFIRM_PAUSE_MS);
    }
    this.#failures++;
    this.#roundsOut = Math.min(MOST_ROUNDS_OUT, 2 ** (this.#failures - 1) - 1);
    if (this.#failures > 1) this.close();
    if (this.#isReachable) this.#tell("unreachable", messageOf(sandboxError(failure)));
    this.#isReachable = false;
    return undefined;
  }

  async #asked(entry: SandboxEntry, known: Instance | undefined): Promise<Health> {
    const { signal } = this.#end;
    if (this.#client !== undefined && this.#hasAnswered) return this.#client.health({ timeoutMs: CALL_MS, signal });
    return this.#node.dials.run(async () => {
      this.#client ??= await this.#node.guests.dial(entry, { known });
      const health = await this.#client.health({ timeoutMs: DIAL_MS, signal });
      this.#hasAnswered = true;
      return health;
    });
  }

  #tell(event: WatchEvent["event"], message: string): void {
    this.#onEvent({ name: this.#name, event, message });
  }
}

/** Whether a call had no answer in time, which a busy host explains as well. */
function isLate(error: unknown): boolean {
  return error instanceof GuestError && error.status === "DEADLINE_EXCEEDED";
}
