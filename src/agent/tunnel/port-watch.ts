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
  readonly tooLate: AgentError;
  /** Its time is over: it has one look that begins after that. */
  isExpired: boolean;
}

/** Limit of one attempt to connect where the kernel lists no listeners: shorter than the pause between two checks. */
const ATTEMPT_MS = 1_000;
/** Attempts at once: a port that does not answer must not keep the others waiting. */
const ATTEMPTS_AT_ONCE = 32;

/** Throws INVALID_ARGUMENT for a number that is no TCP port. */
export function checkPort(port: number): void {
  if (port < 1 || port > 65_535) throw invalidField("port", "must be 1 to 65535");
}

/**
 * Checks at intervals which ports have a listener: once for all waiters, and only while there are any. A waiter whose
 * time is over gets a last check at once.
 */
export class PortWatch {
  readonly #sockets: Sockets;
  readonly #timers: Timers;
  readonly #waiters = new Set<Waiter>();
  #isLooking = false;
  #cancelPause: (() => void) | undefined;

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
    const waiter: Waiter = {
      port,
      settle: (error) => (error === undefined ? resolve() : reject(error)),
      tooLate: notListening(port, limitMs),
      isExpired: false,
    };
    const onAbort = (): void => waiter.settle(signal.reason);
    const cancel = this.#timers.after(limitMs, () => {
      waiter.isExpired = true;
      this.#look();
    });
    signal.addEventListener("abort", onAbort);
    this.#waiters.add(waiter);
    if (this.#cancelPause === undefined) this.#look();
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
    if (this.#isLooking) return;
    this.#cancelPause?.();
    this.#cancelPause = undefined;
    if (this.#waiters.size === 0) return;
    this.#isLooking = true;
    const last = [...this.#waiters].filter(({ isExpired }) => isExpired);
    const failed = (error: unknown): void => {
      for (const waiter of this.#waiters) waiter.settle(error);
    };
    void this.#lookOnce()
      .catch(failed)
      .then(() => {
        for (const waiter of last) {
          waiter.settle(waiter.tooLate);
          this.#waiters.delete(waiter);
        }
        this.#isLooking = false;
        // Those whose time ended during the look have theirs now.
        if ([...this.#waiters].some(({ isExpired }) => isExpired)) this.#look();
        else this.#cancelPause = this.#timers.after(PORT_LOOK_MS, () => this.#look());
      });
  }

  async #lookOnce(): Promise<void> {
    const ports = await this.#sockets.listeningPorts();
    if (ports === undefined) await this.#tryEach();
    else for (const port of ports) this.#found(port);
  }

  #found(port: number): void {
    for (const waiter of this.#waiters) if (waiter.port === port) waiter.settle();
  }

  /** Once each, because an attempt costs the listener a moment. */
  async #tryEach(): Promise<void> {
    const ports = new Set(Array.from(this.#waiters, (waiter) => waiter.port)).values();
    const attempts = async (): Promise<void> => {
      for (const port of ports)
        if ((await this.#connects(4, port)) || (await this.#connects(6, port))) this.#found(port);
    };
    await Promise.all(Array.from({ length: ATTEMPTS_AT_ONCE }, attempts));
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
