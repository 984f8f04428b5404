import { messageOf } from "../../../shared/errors.ts";
import type { Channel } from "../channel.ts";
import { GuestError } from "../errors.ts";

/** The channels of a kept command's client. */
export interface KeptChannelParts {
  readonly channel: Channel;
  /** Makes a channel to the agent, which the caller closes. */
  readonly dial: () => Promise<Channel>;
  /** Dial at every attempt, because credentials may have changed. Otherwise the existing channel dials by itself. */
  readonly alwaysDials: boolean;
}

/** The channel of a kept command's present call: the client's, or one of its own that a later call dialled. */
export class KeptChannel {
  readonly #parts: KeptChannelParts;
  #current: Channel;
  #isStuck = false;
  #isClosed = false;

  constructor(parts: KeptChannelParts) {
    this.#parts = parts;
    this.#current = parts.channel;
  }

  get current(): Channel {
    return this.#current;
  }

  /** Whether another attempt may succeed: the connection failed without a reason, or new credentials may be late. */
  mayPass({ status, reason }: GuestError): boolean {
    const { alwaysDials, channel } = this.#parts;
    if (status === "UNAUTHENTICATED") return alwaysDials;
    const isBroken = reason === undefined && ["UNAVAILABLE", "INTERNAL", "CANCELLED", "UNKNOWN"].includes(status);
    return isBroken && (alwaysDials || !channel.isClosed);
  }

  /** The peer is silent. A channel whose connection hangs in its handshake makes no other: the next is new. */
  leave(): void {
    this.#isStuck = true;
  }

  /** Dials for the next attempt, where the present channel will not do. Rejects with GuestError. */
  async renew(): Promise<void> {
    if (!this.#parts.alwaysDials && !this.#isStuck) return;
    const channel = await this.#dial();
    this.#isStuck = false;
    this.#closeOwn();
    this.#current = channel;
    if (this.#isClosed) this.#closeOwn();
  }

  /** Runs a call, on a channel of its own where the present one is closed. */
  async use<Value>(call: (channel: Channel) => Promise<Value>): Promise<Value> {
    const own = this.#isClosed && this.#isOwn ? await this.#dial() : undefined;
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

  get #isOwn(): boolean {
    return this.#current !== this.#parts.channel;
  }

  #closeOwn(): void {
    if (this.#isOwn) this.#current.close();
  }

  /** Credentials that are just being replaced make it impossible to dial for a moment. */
  #dial(): Promise<Channel> {
    return this.#parts.dial().catch((cause: unknown) => {
      if (cause instanceof GuestError) throw cause;
      const message = `the agent cannot be dialled: ${messageOf(cause)}`;
      throw new GuestError({ status: "UNAVAILABLE", code: "DIAL_FAILED", message, cause });
    });
  }
}
