import { messageOf } from "../../../shared/errors.ts";
import type { Channel } from "../channel.ts";
import { failure, GuestError } from "../errors.ts";

/** The channel of calls that outlive it: a client's, until `renew` puts one of their own in its place. */
export class RedialledChannel {
  readonly #given: Channel;
  readonly #dial: () => Promise<Channel>;
  #current: Channel;
  #isClosed = false;

  /** @param dial makes a channel, where a restore may have changed address and credentials */
  constructor(given: Channel, dial: () => Promise<Channel>) {
    this.#given = given;
    this.#current = given;
    this.#dial = dial;
  }

  get current(): Channel {
    return this.#current;
  }

  /** Dials. Rejects with GuestError: credentials that are just being replaced make it impossible for a moment. */
  async renew(): Promise<void> {
    const fresh = await this.#dialled();
    this.#closeOwn();
    this.#current = fresh;
    if (this.#isClosed) this.#closeOwn();
  }

  /** Makes a call, on a channel for it alone where the present one is closed. */
  async use<Value>(call: (channel: Channel) => Promise<Value>): Promise<Value> {
    const own = this.#isClosed && this.#current !== this.#given ? await this.#dialled() : undefined;
    try {
      return await call(own ?? this.#current);
    } finally {
      own?.close();
    }
  }

  /** A channel that was dialled here ends once its last call has. The client's stays. */
  close(): void {
    this.#isClosed = true;
    this.#closeOwn();
  }

  #closeOwn(): void {
    if (this.#current !== this.#given) this.#current.close();
  }

  #dialled(): Promise<Channel> {
    return this.#dial().catch((cause: unknown) => {
      if (cause instanceof GuestError) throw cause;
      throw failure("UNAVAILABLE", "DIAL_FAILED", `cannot connect to the agent: ${messageOf(cause)}`, cause);
    });
  }
}
