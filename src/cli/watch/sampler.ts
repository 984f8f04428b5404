import { timestampMs } from "@bufbuild/protobuf/wkt";
import { type GuestClient, GuestError, type HealthResponse } from "../../client/index.ts";

/** What an agent said about itself at a time of this host. */
export interface Answer {
  readonly time: Date;
  readonly health: HealthResponse;
  readonly roundTripMs: number;
  /** Guest time minus host time; half of the round trip is uncertain. NaN where the agent does not tell its time. */
  readonly clockErrorMs: number;
  readonly agentVersion: string | undefined;
}

/** One look at an agent: what it said, or why it said nothing. */
export type Sample = Answer | { readonly time: Date; readonly error: GuestError };

/** Looks at an agent again and again. After a failure over a new connection: a restored guest knows nothing of the old. */
export class Sampler {
  readonly #connect: () => GuestClient;
  readonly #timeoutMs: number;
  #client: GuestClient | undefined;

  /** @param timeoutMs how long to wait for an answer, connecting included */
  constructor(connect: () => GuestClient, timeoutMs: number) {
    this.#connect = connect;
    this.#timeoutMs = timeoutMs;
  }

  /** Asks for Health once. Rejects only with what is no GuestError. */
  async sample(signal: AbortSignal): Promise<Sample> {
    const askedMs = Date.now();
    const started = performance.now();
    try {
      const client = (this.#client ??= this.#connect());
      const health = await client.health({ deadlineMs: this.#timeoutMs, signal });
      const roundTripMs = performance.now() - started;
      const guestMs = health.guestTime === undefined ? Number.NaN : timestampMs(health.guestTime);
      const clockErrorMs = guestMs - (askedMs + roundTripMs / 2);
      return { time: new Date(), health, roundTripMs, clockErrorMs, agentVersion: client.agentVersion };
    } catch (error) {
      if (!(error instanceof GuestError)) throw error;
      this.close();
      return { time: new Date(), error };
    }
  }

  /** Closes the connection. */
  close(): void {
    this.#client?.close();
    this.#client = undefined;
  }
}
