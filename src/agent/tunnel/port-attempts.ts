import { SocketError, type Sockets, type Timers } from "../domain/index.ts";

/** Limit for one attempt. It is needed because a listener whose queue is full does not answer. */
const ATTEMPT_MS = 1_000;
/** Number of parallel attempts, so that a port that does not answer does not delay the attempts for other ports. */
const ATTEMPTS_AT_ONCE = 32;

/** Dependencies of `tryPorts`. The timers bound each connection attempt. */
export interface AttemptParts {
  readonly sockets: Sockets;
  readonly timers: Timers;
}

/**
 * Finds listeners by connecting, for kernels that do not list them. Calls `found` with each port that accepts a
 * connection. Tries each port only once, because each attempt causes work for the listener.
 */
export async function tryPorts(
  parts: AttemptParts,
  ports: ReadonlySet<number>,
  found: (port: number) => void,
): Promise<void> {
  const left = ports.values();
  const attempts = async (): Promise<void> => {
    for (const port of left) if ((await connects(parts, 4, port)) || (await connects(parts, 6, port))) found(port);
  };
  await Promise.all(Array.from({ length: ATTEMPTS_AT_ONCE }, attempts));
}

async function connects({ sockets, timers }: AttemptParts, family: 4 | 6, port: number): Promise<boolean> {
  const stop = new AbortController();
  const cancel = timers.after(ATTEMPT_MS, () => stop.abort(new SocketError("ETIMEDOUT")));
  try {
    (await sockets.connectPort(family, port, stop.signal)).close();
    return true;
  } catch (error) {
    // Only a SocketError shows that nothing listens. Other errors have other causes, such as a lack of descriptors.
    if (!(error instanceof SocketError)) throw error;
    return false;
  } finally {
    cancel();
  }
}
