import { SocketError, type Sockets, type Timers } from "../domain/index.ts";

/** Limit of one attempt: a listener whose queue is full does not answer. */
const ATTEMPT_MS = 1_000;
/** Attempts at once: a port that does not answer must not keep the others waiting. */
const ATTEMPTS_AT_ONCE = 32;

/** What attempts need. */
export interface AttemptParts {
  readonly sockets: Sockets;
  readonly timers: Timers;
}

/**
 * Calls back with the ports that take a connection, where the kernel lists no listeners. Tries each once, because an
 * attempt costs the listener a moment.
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
    // Other errors do not mean that nobody listens: the network or this process lacks something now.
    if (!(error instanceof SocketError)) throw error;
    return false;
  } finally {
    cancel();
  }
}
