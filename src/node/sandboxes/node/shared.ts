/**
 * Makes callers at the same time share one question. Each gets an answer to one that was asked after its own call, so
 * the answer is never older than the call.
 */
export function shared<Value>(ask: () => Promise<Value>): () => Promise<Value> {
  let running: Promise<unknown> = Promise.resolve();
  let next: Promise<Value> | undefined;
  const begin = (): Promise<Value> => {
    next = undefined;
    const answer = ask();
    running = answer.catch(() => undefined);
    return answer;
  };
  return () => (next ??= running.then(begin));
}
