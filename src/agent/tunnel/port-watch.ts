import {
  AgentError,
  DEFAULT_PORT_WAIT_MS,
  invalidField,
  PORT_LOOK_MS,
  PORT_WAIT_LIMIT_MS,
  SocketError,
  type Sockets,
  type Timers,
} from "../domain/index.ts";

/** A wait for a port. */
export interface WaitRequest {
  readonly port: number;
  /** 0: the default. */
  readonly timeoutMs: number;
}

interface Waiter {
  readonly port: number;
  readonly settle: (error?: unknown) => void;
}

/** Limit of one attempt to connect where the kernel lists no listeners: shorter than the pause between two checks. */
const ATTEMPT_MS = 1_000;

/** Throws INVALID_ARGUMENT for a number that is no TCP port. */
export function checkPort(port: number): void {
  if (port < 1 || port > 65_535) throw invalidField("port", "must be 1 to 65535");
}

/** Checks at intervals which ports have a listener: once for all waiters, and only while there are any. */
export class PortWatch {
  readonly #sockets: Sockets;
  readonly #timers: Timers;
  readonly #waiters = new Set<Waiter>();
  #isLooking = false;

  constructor(sockets: Sockets, timers: Timers) {
    this.#sockets = sockets;
    this.#timers = timers;
  }

  /** Resolves once somebody listens on the port; rejects when the time is over, or with the signal's reason. */
  async wait({ port, timeoutMs }: WaitRequest, signal: AbortSignal): Promise<void> {
    checkPort(port);
    if (timeoutMs > PORT_WAIT_LIMIT_MS) throw invalidField("timeout_ms", `is more than ${PORT_WAIT_LIMIT_MS}`);
    signal.throwIfAborted();
    const limitMs = timeoutMs === 0 ? DEFAULT_PORT_WAIT_MS : timeoutMs;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { port, settle: (error) => (error === undefined ? resolve() : reject(error)) };
    const onAbort = (): void => waiter.settle(signal.reason);
    const cancel = this.#timers.after(limitMs, () => waiter.settle(notListening(port, limitMs)));
    signal.addEventListener("abort", onAbort);
    this.#waiters.add(waiter);
    this.#look();
    try {
      await promise;
    } finally {
      this.#waiters.delete(waiter);
      signal.removeEventListener("abort", onAbort);
      cancel();
    }
  }

  /** Ends all waits. */
  leave(reason: AgentError): void {
    for (const waiter of this.#waiters) waiter.settle(reason);
  }

  #look(): void {
    if (this.#isLooking || this.#waiters.size === 0) return;
    this.#isLooking = true;
    const failed = (error: unknown): void => {
      for (const waiter of this.#waiters) waiter.settle(error);
    };
    void this.#lookOnce()
      .catch(failed)
      .then(() => {
        this.#timers.after(PORT_LOOK_MS, () => {
          this.#isLooking = false;
          this.#look();
        });
      });
  }

  async #lookOnce(): Promise<void> {
    const ports = (await this.#sockets.listeningPorts()) ?? (await this.#portsThatConnect());
    for (const waiter of this.#waiters) if (ports.has(waiter.port)) waiter.settle();
  }

  /** One after another, because each attempt costs the listener a moment. */
  async #portsThatConnect(): Promise<ReadonlySet<number>> {
    const found = new Set<number>();
    for (const port of new Set(Array.from(this.#waiters, (waiter) => waiter.port))) {
      if ((await this.#connects(4, port)) || (await this.#connects(6, port))) found.add(port);
    }
    return found;
  }

  async #connects(family: 4 | 6, port: number): Promise<boolean> {
    const stop = new AbortController();
    const cancel = this.#timers.after(ATTEMPT_MS, () => stop.abort(new SocketError("ETIMEDOUT")));
    try {
      (await this.#sockets.connectPort(family, port, stop.signal)).close();
      return true;
    } catch (error) {
      // Other errors do not mean that nobody listens: the network or this process lacks something now.
      if (!(error instanceof SocketError)) throw error;
      return false;
    } finally {
      cancel();
    }
  }
}

function notListening(port: number, limitMs: number): AgentError {
  const message = `nothing listens on port ${port} of the guest's loopback after ${limitMs} ms`;
  return new AgentError("DEADLINE_EXCEEDED", "PORT_NOT_LISTENING", message, { port: String(port) });
}
