import { type AgentError, HEALTH_WATCH_LIMIT, unlessAborted, Watchers } from "../domain/index.ts";

/** A client of grpc.health.v1.Health.Watch. */
export interface HealthWatcher {
  /**
   * Whether the agent has the service that the client watches. If not, the client gets only one status, because the
   * status of a service that the agent does not have never changes.
   */
  readonly isServed: boolean;
  /** Sends whether the service is ready. Resolves when the connection has taken the message. */
  readonly send: (ready: boolean) => Promise<void>;
  /** This signal is aborted when the client disconnects. */
  readonly signal: AbortSignal;
}

/** Notifies clients of changes of readiness. */
export class HealthWatches {
  readonly #isReady: () => boolean;
  readonly #watchers = new Watchers(HEALTH_WATCH_LIMIT, "end one of them, or call Check instead");
  #change = Promise.withResolvers<void>();

  constructor(isReady: () => boolean) {
    this.#isReady = isReady;
  }

  /**
   * Sends the readiness now and after each change. If the client reads slowly, it gets only the latest state. Never
   * resolves.
   *
   * @throws AgentError RESOURCE_EXHAUSTED for too many watchers; the reason of the signal or of `shutDown`
   */
  async watch({ isServed, send, signal: client }: HealthWatcher): Promise<never> {
    let sent: boolean | undefined;
    try {
      return await this.#watchers.watch(client, async (signal) => {
        for (;;) {
          const { promise: changed } = this.#change;
          const ready = isServed && this.#isReady();
          if (ready !== sent) {
            sent = ready;
            await unlessAborted(send(ready), signal);
          } else {
            await unlessAborted(changed, signal);
          }
        }
      });
    } finally {
      // Tells the client that the agent is no longer ready, before the call ends with the reason of `shutDown`.
      if (this.#watchers.left && sent === true) void send(false);
    }
  }

  /**
   * Makes each watch compare the readiness with the last one that it has sent. Call it when the readiness may have
   * changed.
   */
  changed(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }

  /** Sends "not ready" to all watchers and ends current and future watches with this reason. */
  shutDown(reason: AgentError): void {
    this.#watchers.shutDown(reason);
  }
}
