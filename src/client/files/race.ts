/** What comes instead of a value once the answer is there. */
export const ANSWERED: unique symbol = Symbol("answered");

/** Waits for a promise, but no longer than for the answer. */
export type UntilAnswered = <Value>(promise: Promise<Value>) => Promise<Value | typeof ANSWERED>;

/** Unlike Promise.race with a promise that lives long, it keeps nothing of the values that have come. */
export function untilAnswered(answer: Promise<unknown>): UntilAnswered {
  let isAnswered = false;
  let wake: (() => void) | undefined;
  const answered = (): void => {
    isAnswered = true;
    wake?.();
  };
  answer.then(answered, answered);
  return (promise) =>
    new Promise((resolve, reject) => {
      wake = () => resolve(ANSWERED);
      promise.then(resolve, reject);
      if (isAnswered) wake();
    });
}
