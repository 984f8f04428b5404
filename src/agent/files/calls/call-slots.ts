import { type ActivityClock, AgentError, Allowance, type Caller, type Clock, type Share } from "../../domain/index.ts";

export interface CallSlotsOptions {
  /** Plural noun for the calls in an error message: "file calls". */
  readonly calls: string;
  readonly limit: number;
  /** Largest number of calls of one connection that run at once. */
  readonly connectionLimit: number;
  readonly clock: Pick<Clock, "monotonicMs">;
  readonly activity: Pick<ActivityClock, "touch">;
}

/** Limits how many calls that read, write or walk the file system can run at once. */
export class CallSlots {
  readonly #slots: Allowance;
  readonly #activity: CallSlotsOptions["activity"];

  constructor({ calls, limit, connectionLimit, clock, activity }: CallSlotsOptions) {
    this.#activity = activity;
    const limits = `the limit of ${limit} open ${calls} (${connectionLimit} per connection) is reached`;
    const metadata = { limit: String(limit), connectionLimit: String(connectionLimit) };
    const refusal = (because: string): AgentError =>
      new AgentError("RESOURCE_EXHAUSTED", "TOO_MANY_FILE_CALLS", `${limits}: ${because}`, metadata);
    this.#slots = new Allowance({ limit, ownerLimit: connectionLimit, clock, refusal });
  }

  /**
   * Takes a slot and runs a call, whose progress counts as user activity. Rejects with RESOURCE_EXHAUSTED if all slots
   * are taken.
   */
  async run<Value>(caller: Caller, call: (onProgress: () => void, place: Share) => Promise<Value>): Promise<Value> {
    const place = this.#slots.share(caller.connection, (reason) => caller.failWithin1s(reason));
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
