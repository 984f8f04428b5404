import { constants } from "node:os";
import type { ExecProcess } from "../../client/index.ts";
import { signalStatus } from "../exit-status.ts";

/** Signals that concern the command. */
const SIGNALS = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"] as const;
type Signal = (typeof SIGNALS)[number];

/** A command that ignores that many SIGINTs is left alone: the user wants out. */
const PATIENCE = 3;

/**
 * Passes signals on to a command until disposed of. SIGHUP, the end of the local terminal, ends guestctl: the agent then
 * hangs up on the command as well. So does SIGTERM with a terminal: shells ignore it there.
 */
export function forwardSignals(process: ExecProcess, isTerminal: boolean, host: NodeJS.Process): Disposable {
  let interrupts = 0;
  const leave = (signal: Signal): void => host.exit(signalStatus(constants.signals[signal]));
  const forward = (signal: Signal): void => {
    if (signal === "SIGINT" && ++interrupts >= PATIENCE) leave(signal);
    process.signal(signal);
  };
  const handlers = SIGNALS.map((signal) => {
    const means = signal === "SIGHUP" || (signal === "SIGTERM" && isTerminal) ? leave : forward;
    return [signal, () => means(signal)] as const;
  });
  for (const [signal, handler] of handlers) host.on(signal, handler);
  return {
    [Symbol.dispose]: () => {
      for (const [signal, handler] of handlers) host.off(signal, handler);
    },
  };
}
