import { type ActivityClock, AgentError, Allowance, type Caller, type Clock, type Share } from "../../domain/index.ts";

/** Options of the places. */
export interface CallPlacesOptions {
  /** What the calls are, in an error: "file calls". */
  readonly calls: string;
  readonly limit: number;
  /** Of one connection. */
  readonly connectionLimit: number;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly activity: Pick<ActivityClock, "touch">;
}

/** Places for calls that read, write or walk; only a limited number may be open. */
export class CallPlaces {
  readonly #places: Allowance;
  readonly #activity: CallPlacesOptions["activity"];

  constructor({ calls, limit, connectionLimit, clock, activity }: CallPlacesOptions) {
    this.#activity = activity;
    const limits = `${limit} ${calls} are open, or ${connectionLimit} of this connection`;
    const metadata = { limit: String(limit), connectionLimit: String(connectionLimit) };
    const refusal = (because: string): AgentError =>
      new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_FILE_CALLS", `${limits}; refused because ${because}`, metadata);
    this.#places = new Allowance({ limit, ownerLimit: connectionLimit, clock, refusal });
  }

  /** Runs a call in a place of its own; its progress is activity. Rejects with RESOURCE_EXHAUSTED if none is free. */
  async run<Value>(caller: Caller, call: (onProgress: () => void, place: Share) => Promise<Value>): Promise<Value> {
    const place = this.#places.share(caller.connection, (reason) => caller.failSoon(reason));
    place.set(1);
    const onProgress = (): void => {
      this.#activity.touch();
      place.progress();
    };
    onProgress();
    try {
      return await call(onProgress, place);
    } finally {
      if (!caller.signal.aborted) this.#activity.touch();
      place.set(0);
    }
  }
}
