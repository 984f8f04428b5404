import { constants } from "node:os";

import type { Signals } from "../domain/index.ts";

/**
 * Signals without a listener. KILL and STOP cannot have one. SEGV, BUS, FPE and ILL mean that the agent itself is
 * broken, and returning from their handler would repeat the fault for ever. PIPE comes with every write to a closed
 * connection. CHLD is about the agent's own children.
 */
const LEFT_ALONE: ReadonlySet<string> = new Set([
  "SIGKILL",
  "SIGSTOP",
  "SIGSEGV",
  "SIGBUS",
  "SIGFPE",
  "SIGILL",
  "SIGPIPE",
  "SIGCHLD",
]);

/** The other signals, by number. Some have two names (SIGIOT is SIGABRT). */
const HEARD: ReadonlyMap<number, NodeJS.Signals> = new Map(
  (Object.entries(constants.signals) as [NodeJS.Signals, number][])
    .filter(([name]) => !LEFT_ALONE.has(name))
    .map(([name, number]) => [number, name]),
);

/** Signals 1 to 31: Node has no real-time ones. Listening for SIGUSR1 keeps Node from opening its debugger. */
export function processSignals(): Signals {
  const listeners: (() => void)[] = [];
  return {
    listen(listener): void {
      for (const [number, name] of HEARD) {
        const onSignal = (): void => listener(number);
        process.on(name, onSignal);
        listeners.push(() => process.off(name, onSignal));
      }
    },
    close(): void {
      for (const stop of listeners.splice(0)) stop();
    },
  };
}
