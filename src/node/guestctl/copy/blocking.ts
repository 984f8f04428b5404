import { allowBlocking } from "../../tar/index.ts";
import { defaultSignals } from "../ending/index.ts";
import type { CopyContext } from "./report.ts";

/**
 * Lets a copy access local files on the main thread, which is faster than a second thread. This applies until the
 * returned object is disposed of. During this time, signals have their default action, because a file system that does
 * not answer would also block signal handlers.
 *
 * Returns undefined if the copy must use a second thread. This is the case if something must be cleaned up at exit, or
 * if progress is shown, which must continue while a file system does not answer.
 */
export function blockingAllowed({ host, options }: CopyContext): Disposable | undefined {
  const showsProgress = host.stderr.isTTY && !options.isQuiet;
  if (showsProgress || host.listenerCount("exit") > 0) return undefined;
  const signals = defaultSignals(host);
  const blocking = allowBlocking();
  return {
    [Symbol.dispose]() {
      blocking[Symbol.dispose]();
      signals[Symbol.dispose]();
    },
  };
}
