import type { Sandboxes } from "../../sandboxes/index.ts";
import { type Host, jsonLine } from "../cli/index.ts";
import { CLEAR_LINE } from "./progress.ts";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * Runs an action that changes sandboxes. Completes the action even if signals arrive, because an action that suspends a
 * sandbox must also resume it.
 *
 * - Until the action changes something, a signal ends guestctl immediately, unless `isEndless`.
 * - Otherwise the first signal only prints what guestctl is waiting for. After the action, guestctl terminates by that
 *   signal, as its caller expects.
 * - A further signal ends guestctl immediately if no sandbox is at risk.
 *
 * @param isEndless whether the action runs until the first signal. If so, guestctl then exits with the action's result
 * @param action receives an AbortSignal that is aborted by the first signal
 */
export async function unbroken<Value>(
  node: Pick<Sandboxes, "atRisk">,
  host: Host,
  { isEndless, isForPrograms }: { readonly isEndless: boolean; readonly isForPrograms: boolean },
  action: (signal: AbortSignal) => Promise<Value>,
): Promise<Value> {
  const end = new AbortController();
  let first: NodeJS.Signals | undefined;
  const say = (step: string): void => {
    // Clear the line first, because a progress line may be on it.
    if (host.stderr.isTTY && !isForPrograms) host.stderr.write(CLEAR_LINE);
    host.stderr.write(isForPrograms ? jsonLine({ progress: { step } }) : `guestctl: ${step}\n`);
  };
  const onSignal = (signal: NodeJS.Signals): void => {
    const atRisk = node.atRisk ?? (isEndless ? [] : undefined);
    if (atRisk === undefined || (first !== undefined && atRisk.length === 0)) {
      if (atRisk !== undefined)
        say(`${signal}: guestctl exits now; "guestctl sandbox sweep" removes unfinished sandboxes`);
      stop();
      host.kill(host.pid, signal);
      return;
    }
    end.abort();
    if (isEndless && first === undefined && atRisk.length === 0) {
      first = signal;
      return;
    }
    const because = atRisk.length === 0 ? "" : ` (${atRisk.join("; ")})`;
    const again = "another signal ends guestctl at once, unless a sandbox could then lose its memory or stay frozen";
    if (first === undefined) say(`${signal}: waiting until the operation has ended${because}; ${again}`);
    else say(`${signal}: guestctl cannot exit yet${because}; ${again}`);
    first ??= signal;
  };
  const stop = (): void => {
    for (const signal of SIGNALS) host.off(signal, onSignal);
  };
  for (const signal of SIGNALS) host.on(signal, onSignal);
  try {
    return await action(end.signal);
  } finally {
    stop();
    if (first !== undefined && !isEndless) endBy(host, first);
  }
}

/** Makes guestctl terminate by the signal after it has written its output, so that the calling shell script ends, too. */
function endBy(host: Host, signal: NodeJS.Signals): void {
  host.once("exit", () => {
    host.removeAllListeners(signal);
    host.kill(host.pid, signal);
  });
}
