import { constants } from "node:os";
import type { ExecProcess } from "../../client/index.ts";
import { signalStatus } from "../exit-status.ts";

/** Signals that mean the command rather than guestctl. */
const FORWARDED = ["SIGINT", "SIGTERM", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;

/** A command that ignores that many SIGINTs is left alone: the user wants out. */
const PATIENCE = 3;

/**
 * Passes signals on to a command until disposed of. SIGHUP, the end of the local terminal, ends guestctl: the agent then
 * hangs up on the command as well.
 */
export function forwardSignals(process: ExecProcess, host: NodeJS.Process): Disposable {
  let interrupts = 0;
  const forward = (signal: (typeof FORWARDED)[number]): void => {
    if (signal === "SIGINT" && ++interrupts >= PATIENCE) host.exit(signalStatus(constants.signals.SIGINT));
    process.signal(constants.signals[signal]);
  };
  const hangUp = (): void => host.exit(signalStatus(constants.signals.SIGHUP));
  for (const signal of FORWARDED) host.on(signal, forward);
  host.on("SIGHUP", hangUp);
  return {
    [Symbol.dispose]: () => {
      for (const signal of FORWARDED) host.off(signal, forward);
      host.off("SIGHUP", hangUp);
    },
  };
}
