import { messageOf } from "../../../../shared/errors.ts";
import type { Channel } from "../channel.ts";
import { failure, GuestError } from "../../errors/errors.ts";

/**
 * A channel for calls that outlive their connection. At first it is the client's channel. `renew` replaces it by a
 * channel that belongs to this object.
 */
export class RedialledChannel {
  readonly #given: Channel;
  readonly #dial: () => Promise<Channel>;
  #current: Channel;
  #isClosed = false;

  /** @param dial creates a channel with the current address and credentials, which a restore may have changed */
  constructor(given: Channel, dial: () => Promise<Channel>) {
    this.#given = given;
    this.#current = given;
    this.#dial = dial;
  }

  get current(): Channel {
    return this.#current;
  }

  /**
   * Replaces the channel by a new one. Rejects with GuestError, for example while the caller is just replacing its
   * credential files.
   */
  async renew(): Promise<void> {
    const fresh = await this.#dialled();
    this.#closeOwn();
    this.#current = fresh;
    if (this.#isClosed) this.#closeOwn();
  }

  /**
   * Makes a call on the current channel. If `close` has closed that channel, makes the call on a new channel, and
   * closes the new channel afterwards. (`close` closes only a channel that `renew` has created.)
   */
  async use<Value>(call: (channel: Channel) => Promise<Value>): Promise<Value> {
    const own = this.#isClosed && this.#current !== this.#given ? await this.#dialled() : undefined;
    try {
      return await call(own ?? this.#current);
    } finally {
      own?.close();
    }
  }

  /**
   * If `renew` has created a channel, closes this channel after its last call has ended. The client's own channel stays
   * open.
   */
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

/** Creates the error of a call whose time limit has expired before there was a new connection. */
export function notRedialled(): GuestError {
  const message = "requestTimeoutMs expired before there was a new connection to the agent";
  return new GuestError({ status: "DEADLINE_EXCEEDED", message });
}
