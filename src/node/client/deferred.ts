/** A promise and the functions that settle it. */
export interface Deferred<Value> {
  readonly promise: Promise<Value>;
  readonly resolve: (value: Value) => void;
  readonly reject: (error: unknown) => void;
}

/** Promise.withResolvers, which Node 20 lacks; clients run there too. */
export function deferred<Value>(): Deferred<Value> {
  let settle: Pick<Deferred<Value>, "resolve" | "reject"> | undefined;
  const promise = new Promise<Value>((resolve, reject) => {
    settle = { resolve, reject };
  });
  if (settle === undefined) throw new Error("a promise runs its executor at once");
  return { promise, ...settle };
}
