import { setTimeout as delay } from "node:timers/promises";
import { endBySignal, letStreamsBlock } from "./end-by-signal.ts";

const SIGNALS = ["SIGHUP", "SIGINT", "SIGTERM"] as const;
/** How long a signal waits for clean-up, which may never end on a file system that does not answer. */
const CLEAN_UP_MS = 500;

type CleanUp = () => Promise<void>;

const cleanUps = new Set<CleanUp>();

/** Ends guestctl by a signal that nothing else handles, after clean-up. */
function leaveBySignal(signal: NodeJS.Signals): void {
  if (process.listenerCount(signal) > 1) return;
  const leave = (): never => process.exit(endBySignal(process, signal));
  if (cleanUps.size === 0) leave();
  const cleaning = Promise.allSettled(Array.from(cleanUps, async (cleanUp) => cleanUp()));
  void Promise.race([cleaning, delay(CLEAN_UP_MS)]).then(leave);
}

/** Makes signals end guestctl after clean-up and listeners of "exit". */
export function handleSignals(host: NodeJS.Process): void {
  for (const signal of SIGNALS) host.on(signal, leaveBySignal);
}

/**
 * Gives signals their default action until the returned object is disposed of. They then end guestctl without any
 * clean-up, but even while its JavaScript is blocked, for example by a file system that does not answer.
 */
export function defaultSignals(host: NodeJS.Process): Disposable {
  for (const signal of SIGNALS) host.off(signal, leaveBySignal);
  // Standard input is left out, because reading the property `stdin` would open it.
  letStreamsBlock(host, ["stdout", "stderr"]);
  return { [Symbol.dispose]: () => handleSignals(host) };
}

/**
 * Registers a clean-up, until the returned object is disposed of. A signal that ends guestctl first runs the clean-up,
 * and waits for it for at most half a second.
 */
export function cleanUpAtSignal(cleanUp: CleanUp): Disposable {
  cleanUps.add(cleanUp);
  return { [Symbol.dispose]: () => void cleanUps.delete(cleanUp) };
}
