/** A promise and the functions that settle it. */
export interface Settlement<Value> {
  readonly promise: Promise<Value>;
  readonly resolve: (value: Value) => void;
  readonly reject: (error: unknown) => void;
}

/** Promise.withResolvers, which Node 20 lacks; clients run there too. */
export function settlement<Value>(): Settlement<Value> {
  let settle: Pick<Settlement<Value>, "resolve" | "reject"> | undefined;
  const promise = new Promise<Value>((resolve, reject) => {
    settle = { resolve, reject };
  });
  if (settle === undefined) throw new Error("a promise runs its executor at once");
  return { promise, ...settle };
}
