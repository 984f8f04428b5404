import { constants } from "node:os";

import type { Signals } from "../domain/index.ts";

/**
 * Signals without a handler. KILL and STOP cannot have one. After SEGV, BUS, FPE and ILL, returning from a handler
 * would repeat the fault for ever. PIPE is raised by every write to a closed connection. processes/child.ts handles
 * CHLD.
 */
const UNHANDLED: ReadonlySet<string> = new Set([
  "SIGKILL",
  "SIGSTOP",
  "SIGSEGV",
  "SIGBUS",
  "SIGFPE",
  "SIGILL",
  "SIGPIPE",
  "SIGCHLD",
]);

/** All signals except those in UNHANDLED, by number. Some signals have two names (SIGIOT is SIGABRT). */
const HANDLED: ReadonlyMap<number, NodeJS.Signals> = new Map(
  (Object.entries(constants.signals) as [NodeJS.Signals, number][])
    .filter(([name]) => !UNHANDLED.has(name))
    .map(([name, number]) => [number, name]),
);

/**
 * Signals 1 to 31, because Node does not support real-time signals. A listener for SIGUSR1 also keeps Node from opening
 * its debugger.
 */
export function processSignals(): Signals {
  const listeners: (() => void)[] = [];
  return {
    listen(listener): void {
      for (const [number, name] of HANDLED) {
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
