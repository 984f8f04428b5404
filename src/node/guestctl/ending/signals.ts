import { setTimeout as delay } from "node:timers/promises";
import { endBySignal, letStreamsBlock } from "./end-by-signal.ts";

const SIGNALS = ["SIGHUP", "SIGINT", "SIGTERM"] as const;
/**
 * Time limit of the clean-up after a signal, because a file system that does not answer could delay guestctl's end
 * forever.
 */
const CLEAN_UP_MS = 500;

type CleanUp = () => Promise<void>;

const cleanUps = new Set<CleanUp>();

/**
 * Handles a signal: runs all clean-ups, then ends guestctl by the same signal. Does nothing if the signal has another
 * listener.
 */
function leaveBySignal(signal: NodeJS.Signals): void {
  if (process.listenerCount(signal) > 1) return;
  const leave = (): never => process.exit(endBySignal(process, signal));
  if (cleanUps.size === 0) leave();
  const cleaning = Promise.allSettled(Array.from(cleanUps, async (cleanUp) => cleanUp()));
  void Promise.race([cleaning, delay(CLEAN_UP_MS)]).then(leave);
}

/** Makes SIGHUP, SIGINT and SIGTERM end guestctl, after its clean-ups and the listeners of "exit" have run. */
export function handleSignals(host: NodeJS.Process): void {
  for (const signal of SIGNALS) host.on(signal, leaveBySignal);
}

/**
 * Gives signals their default action until the returned object is disposed of. A signal then ends guestctl even while
 * its JavaScript is blocked, for example by a file system that does not answer. No clean-up runs in this case.
 */
export function defaultSignals(host: NodeJS.Process): Disposable {
  for (const signal of SIGNALS) host.off(signal, leaveBySignal);
  // Standard input is left out, because reading the property `stdin` would open it.
  letStreamsBlock(host, ["stdout", "stderr"]);
  return { [Symbol.dispose]: () => handleSignals(host) };
}

/**
 * Registers a clean-up until the returned object is disposed of. Before a signal ends guestctl, the clean-up runs, but
 * for at most half a second.
 */
export function cleanUpAtSignal(cleanUp: CleanUp): Disposable {
  cleanUps.add(cleanUp);
  return { [Symbol.dispose]: () => void cleanUps.delete(cleanUp) };
}
