import { constants } from "node:os";
import type { Signals } from "../domain/index.ts";

/**
 * Signals that Node can hand over. KILL and STOP reach nobody; CHLD is the platform's own; a handler for PIPE, PROF or one
 * that reports a fault of this process would only hide that. Real-time signals are the launcher's to catch: Node dies of
 * them.
 */
const NAMES: readonly NodeJS.Signals[] = [
  "SIGHUP",
  "SIGINT",
  "SIGQUIT",
  "SIGTERM",
  "SIGUSR1",
  "SIGUSR2",
  "SIGALRM",
  "SIGVTALRM",
  "SIGCONT",
  "SIGTSTP",
  "SIGTTIN",
  "SIGTTOU",
  "SIGURG",
  "SIGXCPU",
  "SIGXFSZ",
  "SIGWINCH",
  "SIGIO",
  "SIGPWR",
];

/** The agent's signals as Node delivers them: the way without a launcher. */
export class ProcessSignals implements Signals {
  #listener: ((signal: number) => void) | undefined;
  readonly #onSignal = (name: NodeJS.Signals): void => this.#listener?.(constants.signals[name]);

  listen(listener: (signal: number) => void): void {
    this.#listener = listener;
    for (const name of NAMES) process.on(name, this.#onSignal);
  }

  close(): void {
    for (const name of NAMES) process.off(name, this.#onSignal);
  }
}
