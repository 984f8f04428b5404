import { lasting, orAborted } from "../substrate/index.ts";

/**
 * Lets callers share a request that has not begun yet. A caller never joins a request that has already begun, so the
 * answer is never older than the caller's call.
 */
export function shared<Value>(ask: () => Promise<Value>): () => Promise<Value> {
  let running: Promise<unknown> = Promise.resolve();
  let next: Promise<Value> | undefined;
  const begin = (): Promise<Value> => {
    next = undefined;
    // Several callers share this request, so it must continue if one of them is aborted.
    const answer = lasting(ask);
    running = answer.catch(() => undefined);
    return answer;
  };
  return () => orAborted((next ??= running.then(begin)));
}
