import { setTimeout as pause } from "node:timers/promises";
import { connect, type GuestClient, GuestError, isTransient } from "../../client/index.ts";
import { messageOf } from "../../../shared/errors.ts";
import { printable } from "../cli/index.ts";
import { ANSWER_TIMEOUT_MS, type ConnectionValues, connector, isDialError } from "../connection/index.ts";

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 2_000;

/**
 * Shows what a watch yields, until SIGINT or SIGTERM arrives. The watch survives lost connections, a standby and
 * restore steps, because each attempt to reconnect reads the address and the credentials again. Prints one line when
 * the connection is lost, and one when it is restored. If the first connection fails, throws its error. Resolves with
 * the exit status after a signal, or as soon as `show` returns true.
 */
export async function watchUntilSignal<Report>(
  values: ConnectionValues,
  host: NodeJS.Process,
  watch: (client: GuestClient, signal: AbortSignal) => AsyncIterable<Report>,
  show: (report: Report) => Promise<boolean | void>,
): Promise<number> {
  const left = untilSignal(host);
  const { redial, connect: dial } = await connector(values, host);
  const connection = new Connection(host);
  const watchOnce = async (client: GuestClient): Promise<boolean> => {
    using watched = client;
    // The call for the watch has no time limit, so first check that the agent answers.
    await watched.health({ requestTimeoutMs: ANSWER_TIMEOUT_MS, signal: left });
    for await (const report of watch(watched, left)) {
      connection.isMade();
      if ((await show(report)) === true) return true;
    }
    return false;
  };
  while (!left.aborted) {
    try {
      if (await watchOnce(redial === undefined || !connection.wasMade ? dial() : connect(await redial()))) return 0;
      connection.isLost("the agent ended the watch");
    } catch (error) {
      if (left.aborted) break;
      if (!connection.wasMade || isShutdown(error)) throw error;
      if (!isTransient(error) && !isDialError(error) && !isUnanswered(error)) throw error;
      connection.isLost(messageOf(error));
    }
    await pause(connection.pauseMs(), undefined, { signal: left }).catch(() => undefined);
  }
  return 0;
}

/** Whether the agent is shutting down. The watch then ends, because the sandbox usually ends too. */
function isShutdown(error: unknown): boolean {
  return error instanceof GuestError && error.reason === "SHUTTING_DOWN";
}

/** Whether the connection was established but the call timed out, as with a suspended agent. */
function isUnanswered(error: unknown): boolean {
  return error instanceof GuestError && error.status === "DEADLINE_EXCEEDED" && error.reason === undefined;
}

/** Returns a signal that is aborted by SIGINT or SIGTERM. These signals then no longer end guestctl themselves. */
export function untilSignal(host: NodeJS.Process): AbortSignal {
  const left = new AbortController();
  onSignal(host, () => left.abort());
  return left.signal;
}

/** How long guestctl waits at its exit, so that the next program of a pipe can read the last reports. */
const FLUSH_MS = 500;

/**
 * Calls `leave` at SIGINT or SIGTERM. If standard output has not accepted the last lines half a second later, exits
 * with status 0. Otherwise guestctl would wait forever for a program that does not read from its pipe.
 */
export function onSignal(host: NodeJS.Process, leave: () => void): void {
  const end = (): void => {
    leave();
    setTimeout(() => {
      if (host.stdout.writableLength > 0) host.exit(0);
    }, FLUSH_MS).unref();
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) host.once(signal, end);
}

/** The state of the connection. Each change is reported in one line. */
class Connection {
  readonly #host: NodeJS.Process;
  #wasMade = false;
  #lostAtMs: number | undefined;
  #pauseMs = FIRST_PAUSE_MS;

  constructor(host: NodeJS.Process) {
    this.#host = host;
  }

  /** Whether the agent has ever answered. */
  get wasMade(): boolean {
    return this.#wasMade;
  }

  isMade(): void {
    if (this.#lostAtMs !== undefined)
      this.#host.stderr.write(`guestctl: reconnected after ${seconds(performance.now() - this.#lostAtMs)}\n`);
    this.#wasMade = true;
    this.#lostAtMs = undefined;
    this.#pauseMs = FIRST_PAUSE_MS;
  }

  isLost(why: string): void {
    if (this.#lostAtMs === undefined) this.#host.stderr.write(`guestctl: ${printable(why)}; reconnecting\n`);
    this.#lostAtMs ??= performance.now();
  }

  /** Time before the next attempt (exponential backoff). */
  pauseMs(): number {
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    return pauseMs;
  }
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}
