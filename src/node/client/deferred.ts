/** A promise and the functions that settle it. */
export interface Deferred<Value> {
  readonly promise: Promise<Value>;
  readonly resolve: (value: Value) => void;
  readonly reject: (error: unknown) => void;
}

/** Does what Promise.withResolvers does, because the client library supports Node 20, which lacks that function. */
export function deferred<Value>(): Deferred<Value> {
  const settle = {} as Pick<Deferred<Value>, "resolve" | "reject">;
  const promise = new Promise<Value>((resolve, reject) => void Object.assign(settle, { resolve, reject }));
  return { promise, ...settle };
}
