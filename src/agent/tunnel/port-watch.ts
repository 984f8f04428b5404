import {
  type AgentError,
  DEFAULT_PORT_WAIT_MS,
  invalidField,
  type Listener,
  type ListenerScope,
  PORT_POLL_MS,
  PORT_WAIT_LIMIT_MS,
  PORT_WATCH_LIMIT,
  PORT_WATCH_POLL_MS,
  type Sockets,
  type Timers,
  unlessAborted,
  Watchers,
} from "../domain/index.ts";
import { LAST_PORT } from "../../shared/ports.ts";
import { notListening, portsNotKnown } from "./failure.ts";
import { tryPorts } from "./port-attempts.ts";
import { changesOf, PortListBuilder, type PortChanges, type PortList } from "./port-list.ts";

/** A request to wait until something listens on a port. */
export interface WaitRequest {
  readonly port: number;
  /** Timeout of the wait; 0 means the default. */
  readonly timeoutMs: number;
}

interface Waiter {
  readonly port: number;
  readonly limitMs: number;
  /**
   * Called when something listens on the port. `scope` is undefined if the kernel does not report the listener's
   * address.
   */
  readonly found: (scope: ListenerScope | undefined) => void;
  readonly fail: (error: unknown) => void;
  /** The address on which the last poll found a server on this port, if tunnels do not reach that address. */
  otherAddress: string | undefined;
  /** Whether the time limit of this wait has expired. If so, the wait fails unless the next poll finds a listener. */
  isExpired: boolean;
}

/** What PortWatch needs of the client of a WatchPorts call: to send changes, and to know whether it can take more. */
export interface PortWatcher {
  /** Whether the previous message has not been sent yet, because the client reads too slowly. */
  readonly isBehind: () => boolean;
  readonly send: (changes: PortChanges) => void;
  /** This signal is aborted when the client disconnects. */
  readonly signal: AbortSignal;
}

/** Order of the scopes: if several listeners share a port, the widest scope is reported. */
const WIDTHS: Readonly<Record<ListenerScope, number>> = { LOOPBACK: 1, ADDRESS: 2, ANY: 3 };
/** Throws INVALID_ARGUMENT for a number that is not a valid TCP port. */
export function checkPort(port: number): void {
  if (port < 1 || port > LAST_PORT) throw invalidField("port", `must be 1 to ${LAST_PORT}`);
}

export interface PortWatchParts {
  readonly sockets: Sockets;
  readonly timers: Timers;
  /** The agent's own TCP port. Lists of ports leave it out. */
  readonly ownPort: number | undefined;
  /** Returns how many times the guest has been restored. */
  readonly generation: () => number;
}

/**
 * Polls which ports have a listener. Polls only while a call needs it: a call that waits for a port, lists the ports or
 * watches them. One poll serves all these calls. When the time limit of a waiting call expires, one more poll starts at
 * once.
 */
export class PortWatch {
  readonly #parts: PortWatchParts;
  readonly #waiters = new Set<Waiter>();
  readonly #watchers = new Watchers(PORT_WATCH_LIMIT, "end one of them, or call ListPorts instead");
  /** Callers that wait for the list of the next poll. */
  readonly #asking: PromiseWithResolvers<PortList>[] = [];
  #list: PortList | undefined;
  #isPolling = false;
  /** True if a caller of `list` waits for the next poll. This poll then begins without a pause. */
  #isUrgent = false;
  #cancelPause: (() => void) | undefined;
  #pauseMs = 0;

  constructor(parts: PortWatchParts) {
    this.#parts = parts;
  }

  /**
   * Resolves with the scope of the server that listens on the port, as soon as there is one. If several servers listen
   * on the port, this is the widest of their scopes. Rejects when the time is over, or with the signal's reason.
   */
  async wait({ port, timeoutMs }: WaitRequest, signal: AbortSignal): Promise<ListenerScope | undefined> {
    checkPort(port);
    if (timeoutMs > PORT_WAIT_LIMIT_MS) throw invalidField("timeout_ms", `exceeds ${PORT_WAIT_LIMIT_MS}`);
    signal.throwIfAborted();
    const limitMs = timeoutMs === 0 ? DEFAULT_PORT_WAIT_MS : timeoutMs;
    const { promise, resolve: found, reject: fail } = Promise.withResolvers<ListenerScope | undefined>();
    const waiter: Waiter = { port, limitMs, found, fail, otherAddress: undefined, isExpired: false };
    const cancel = this.#parts.timers.after(limitMs, () => {
      waiter.isExpired = true;
      this.#poll();
    });
    this.#waiters.add(waiter);
    // As long as no call waits for a port, the pause between two polls is long (PORT_WATCH_POLL_MS). This call waits
    // for a port, so it ends such a pause.
    if (this.#cancelPause === undefined || this.#pauseMs > PORT_POLL_MS) this.#poll();
    try {
      return await unlessAborted(promise, signal);
    } finally {
      this.#waiters.delete(waiter);
      cancel();
    }
  }

  /**
   * If servers listen on the port, but tunnels reach none of them, resolves with the address of one server. Otherwise
   * resolves with undefined, also if the kernel does not list listeners. Uses a new poll of all listeners, even if
   * there are more than PORTS_LISTED.
   */
  async otherAddressOf(port: number): Promise<string | undefined> {
    const { promise, resolve } = Promise.withResolvers<string | undefined>();
    const waiter: Waiter = {
      port,
      limitMs: 0,
      found: () => resolve(undefined),
      fail: () => resolve(waiter.otherAddress),
      otherAddress: undefined,
      isExpired: true,
    };
    this.#waiters.add(waiter);
    this.#poll();
    try {
      return await promise;
    } finally {
      this.#waiters.delete(waiter);
    }
  }

  /**
   * Resolves with the listening ports, read by a poll that starts after this call. Rejects with PORTS_NOT_KNOWN if
   * there is no /proc.
   */
  list(): Promise<PortList> {
    const list = this.#nextList();
    this.#isUrgent = true;
    this.#poll();
    return list;
  }

  /**
   * Sends the list and then its changes, until it rejects: with PORTS_NOT_KNOWN if there is no /proc, or with the
   * reason of a signal.
   */
  async watch(watcher: PortWatcher): Promise<never> {
    const { generation } = this.#parts;
    return this.#watchers.watch(watcher.signal, async (signal) => {
      let sent: PortList | undefined;
      let sentIn = generation();
      for (
        let list = await unlessAborted(this.list(), signal);
        ;
        list = await unlessAborted(this.#nextList(), signal)
      ) {
        if (watcher.isBehind()) continue;
        const changes = changesOf(sentIn === generation() ? sent : undefined, list);
        [sent, sentIn] = [list, generation()];
        if (changes !== undefined) watcher.send(changes);
      }
    });
  }

  /** Ends all calls that wait or watch. */
  shutDown(reason: AgentError): void {
    for (const { fail } of this.#waiters) fail(reason);
    this.#watchers.shutDown(reason);
  }

  #nextList(): Promise<PortList> {
    const asking = Promise.withResolvers<PortList>();
    this.#asking.push(asking);
    // This promise may reject after its caller has stopped waiting. The no-op handler prevents an unhandled rejection.
    asking.promise.catch(() => undefined);
    return asking.promise;
  }

  #poll(): void {
    if (this.#isPolling) return;
    this.#cancelPause?.();
    this.#cancelPause = undefined;
    if (this.#waiters.size === 0 && this.#asking.length === 0) return;
    this.#isPolling = true;
    this.#isUrgent = false;
    const waiters = [...this.#waiters];
    const asking = this.#asking.splice(0);
    const last = waiters.filter(({ isExpired }) => isExpired);
    void this.#pollOnce(waiters, asking)
      .catch((error: unknown) => {
        for (const one of waiters) one.fail(error);
        for (const one of asking) one.reject(error);
      })
      .then(() => {
        for (const waiter of last) {
          waiter.fail(notListening(waiter.port, waiter.limitMs, waiter.otherAddress));
          this.#waiters.delete(waiter);
        }
        this.#isPolling = false;
        this.#pauseMs = waiters.length + this.#waiters.size > 0 ? PORT_POLL_MS : PORT_WATCH_POLL_MS;
        // A wait whose time limit expired during this poll does not fail yet: one more poll runs for it, without a
        // pause.
        if (this.#isUrgent || [...this.#waiters].some(({ isExpired }) => isExpired)) this.#poll();
        else this.#cancelPause = this.#parts.timers.after(this.#pauseMs, () => this.#poll());
      });
  }

  async #pollOnce(waiters: readonly Waiter[], asking: readonly PromiseWithResolvers<PortList>[]): Promise<void> {
    const { sockets, ownPort } = this.#parts;
    const gathering = asking.length > 0 ? new PortListBuilder() : undefined;
    const reached = new Set<number>();
    const widest = new Map<number, Listener | undefined>(waiters.map(({ port }) => [port, undefined]));
    const isKnown = await sockets.eachListener((listener) => {
      const { port, scope, isReached } = listener;
      if (port !== ownPort) gathering?.take(listener);
      if (!widest.has(port)) return;
      if (isReached) reached.add(port);
      const before = widest.get(port);
      if (before === undefined || WIDTHS[before.scope] < WIDTHS[scope]) widest.set(port, listener);
    });
    if (!isKnown) {
      for (const { reject } of asking) reject(portsNotKnown());
      return tryPorts(this.#parts, new Set(Array.from(this.#waiters, ({ port }) => port)), (port) => {
        for (const waiter of this.#waiters) if (waiter.port === port) waiter.found(undefined);
      });
    }
    for (const waiter of waiters) {
      const { scope, address } = widest.get(waiter.port) ?? {};
      if (reached.has(waiter.port)) waiter.found(scope);
      else waiter.otherAddress = address;
    }
    if (gathering === undefined) return;
    const list = (this.#list = await gathering.listed(sockets, this.#list));
    for (const { resolve } of asking) resolve(list);
  }
}
