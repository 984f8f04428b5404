import { setTimeout as pause } from "node:timers/promises";
import { messageOf } from "../../../shared/errors.ts";
import { type GuestClient, GuestError, type Health } from "../../client/index.ts";
import { type JournalEntry, type NodeParts, ready, type SandboxEntry } from "../state/index.ts";
import { discard, standby, stop } from "../operations/index.ts";
import { type Instance, SandboxError, sandboxError } from "../substrate/index.ts";
import { decide, type Verdict } from "./verdict.ts";

/** Time limit of a call over an existing connection, over which the agent has already answered. */
const CALL_MS = 5_000;
/** Time limit of a new connection, until the first answer over it. */
const DIAL_MS = 10_000;
/** Pause before the second attempt to reach a sandbox that did not answer. */
const CONFIRM_PAUSE_MS = 100;
/**
 * Limit on how many rounds the watch skips a sandbox whose check has failed. The number of rounds doubles with each
 * failure.
 */
const MOST_ROUNDS_OUT = 8;

/** An event of the watch: what it has noticed or done. */
export interface WatchEvent {
  readonly name: string;
  /**
   * What happened: the name of the action that was carried out; "unreachable" or "reachable" if the agent has stopped
   * or resumed answering; "failed" if a check or an action failed.
   */
  readonly event: "standby" | "stop" | "remove" | "unreachable" | "reachable" | "failed";
  readonly message: string;
}

/** Returns the entry of a running sandbox whose restore steps are done. Returns undefined for any other entry. */
export function running(entry: JournalEntry | undefined): SandboxEntry | undefined {
  if (entry?.kind !== "sandbox" || entry.phase !== "ready" || entry.runEpochMs === undefined) return undefined;
  return entry;
}

/** Checks one sandbox repeatedly. Uses the same connection as long as it works. */
export class Watcher {
  readonly #node: NodeParts;
  readonly #name: string;
  readonly #onEvent: (event: WatchEvent) => void;
  #client: GuestClient | undefined;
  /**
   * Whether the agent has answered on this connection. Until it has, each check uses the longer deadline of a new
   * connection.
   */
  #hasAnswered = false;
  #isReachable = true;
  /** Aborts the requests of a check. It never aborts an action. */
  readonly #end = new AbortController();
  /** Number of consecutive failed checks. Because of them, the sandbox is skipped in the next `#roundsOut` rounds. */
  #failures = 0;
  #roundsOut = 0;
  #checking: Promise<void> | undefined;

  constructor(node: NodeParts, name: string, onEvent: (event: WatchEvent) => void) {
    this.#node = node;
    this.#name = name;
    this.#onEvent = onEvent;
  }

  get needsConnection(): boolean {
    return this.#client === undefined && this.#roundsOut === 0;
  }

  /**
   * Starts a check. Does nothing if the previous check is still running, if this process works on the sandbox, or if
   * this round is skipped because earlier checks failed.
   *
   * @param known the sandbox's instance, if it was just listed
   */
  check(known: Instance | undefined): void {
    if (this.#checking !== undefined || this.#node.operations.isBusy(this.#name)) return;
    if (this.#roundsOut > 0) {
      this.#roundsOut--;
      return;
    }
    this.#checking = this.#check(known).finally(() => (this.#checking = undefined));
  }

  /**
   * Closes the connection. Returns false if a check is still running. That check may connect again, so the caller must
   * then call `close` again later.
   */
  close(): boolean {
    this.#client?.close();
    this.#client = undefined;
    this.#hasAnswered = false;
    return this.#checking === undefined;
  }

  /** Ends the checks. Aborts a pending request, but waits until an action in progress is completed. */
  async end(): Promise<void> {
    this.#end.abort();
    await this.#checking;
    this.close();
  }

  async #check(known: Instance | undefined): Promise<void> {
    try {
      if ((await this.#verdict(known)) !== undefined)
        await this.#node.operations.exclusive("watch", this.#name, () => this.#act());
    } catch (error) {
      // Do nothing, because another process works on the sandbox. The next check will decide again.
      if (error instanceof SandboxError && error.code === "SANDBOX_BUSY") return;
      this.#report("failed", messageOf(sandboxError(error)));
    }
  }

  /**
   * Carries out the action that is due. Once this process has the sandbox's lock, checks again whether it is still due,
   * because the user may have become active meanwhile.
   */
  async #act(): Promise<void> {
    const verdict = await this.#verdict();
    if (verdict === undefined) return;
    const entry = ready(this.#node.journal.sandbox(this.#name));
    this.close();
    if (verdict.action === "remove") await discard(this.#node, "watch", entry);
    else if (verdict.action === "stop") {
      const { warnings } = await stop(this.#node, entry, "watch");
      this.#report("stop", [verdict.because, ...warnings.map(({ message }) => message)].join("; "));
      return;
    } else if (verdict.action === "standby") {
      const { warnings } = await standby(this.#node, entry, {}, "watch");
      this.#report(
        "standby",
        [verdict.because, ...warnings.map(({ code, message }) => `${message} [${code}]`)].join("; "),
      );
      return;
    }
    this.#report(verdict.action, verdict.because);
  }

  async #verdict(known?: Instance): Promise<Verdict | undefined> {
    const entry = running(this.#node.journal.get(this.#name));
    if (entry === undefined) return undefined;
    const health = await this.#health(entry, known);
    return health && decide(entry, health, Date.now());
  }

  /**
   * Calls Health, and calls it again if the first call fails. Resolves with undefined if both calls fail, or if the
   * sandbox was suspended or removed meanwhile.
   */
  async #health(entry: SandboxEntry, known: Instance | undefined): Promise<Health | undefined> {
    const isSame = (): boolean => running(this.#node.journal.get(this.#name))?.runEpochMs === entry.runEpochMs;
    let failure: unknown;
    for (const instance of [known, undefined]) {
      try {
        const health = await this.#asked(entry, instance);
        if (!this.#isReachable) this.#report("reachable", "it answers again");
        this.#isReachable = true;
        this.#failures = 0;
        return health;
      } catch (error) {
        failure = error;
      }
      // After a timeout, keep the connection, because it may still become ready. After any other failure, close the
      // connection, because the sandbox may have a new address.
      if (!isLate(failure)) this.close();
      if (!isSame() || this.#end.signal.aborted) return undefined;
      await pause(CONFIRM_PAUSE_MS);
    }
    this.#failures++;
    this.#roundsOut = Math.min(MOST_ROUNDS_OUT, 2 ** (this.#failures - 1) - 1);
    if (this.#failures > 1) this.close();
    if (this.#isReachable) this.#report("unreachable", messageOf(sandboxError(failure)));
    this.#isReachable = false;
    return undefined;
  }

  async #asked(entry: SandboxEntry, known: Instance | undefined): Promise<Health> {
    const { signal } = this.#end;
    if (this.#client !== undefined && this.#hasAnswered)
      return this.#client.health({ requestTimeoutMs: CALL_MS, signal });
    return this.#node.dials.run(async () => {
      this.#client ??= await this.#node.guests.dial(entry, { known });
      const health = await this.#client.health({ requestTimeoutMs: DIAL_MS, signal });
      this.#hasAnswered = true;
      return health;
    });
  }

  #report(event: WatchEvent["event"], message: string): void {
    this.#onEvent({ name: this.#name, event, message });
  }
}

/** Whether a call timed out, which may also happen because this host is busy. */
function isLate(error: unknown): boolean {
  return error instanceof GuestError && error.status === "DEADLINE_EXCEEDED";
}
