import { allowBlocking } from "../../tar/index.ts";
import { defaultSignals } from "../ending/index.ts";
import type { CopyContext } from "./report.ts";

/**
 * Lets a copy block this process until it is disposed of, which is faster than a thread for local files. Signals have
 * their default action meanwhile, because a file system that does not answer would also block their handlers. Returns
 * undefined, and the copy then uses a thread, if there is something to clean up at exit, or if progress is shown, which
 * must continue while the file system does not answer.
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
