import { type AgentError, HEALTH_WATCH_LIMIT, unlessAborted, Watchers } from "../domain/index.ts";

/** Client of a watch. */
export interface HealthWatcher {
  /** Whether the agent has the service that the client asks about. If not, its status never changes. */
  readonly isServed: boolean;
  /** Sends whether the service is ready. Resolves when the connection has taken the message. */
  readonly send: (ready: boolean) => Promise<void>;
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
}

/** Tells clients about each change of readiness. */
export class HealthWatches {
  readonly #isReady: () => boolean;
  readonly #watchers = new Watchers(HEALTH_WATCH_LIMIT, "end one, or call Check");
  #change = Promise.withResolvers<void>();

  constructor(isReady: () => boolean) {
    this.#isReady = isReady;
  }

  /**
   * Sends the readiness at once and after each change. While the client has not taken a message, no other is queued: it
   * then gets the latest state. Never resolves.
   *
   * @throws AgentError RESOURCE_EXHAUSTED for too many watchers; the signal's reason, or that of `leave`
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
      // The client learns that the agent stops before the call ends with the reason of `leave`.
      if (this.#watchers.left && sent === true) void send(false);
    }
  }

  /** The readiness may have changed. */
  changed(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }

  /** Sends "not ready" to all watchers and ends their watches with this reason; also those that begin later. */
  leave(reason: AgentError): void {
    this.#watchers.leave(reason);
  }
}
