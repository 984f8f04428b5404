import type { Channel } from "../grpc/channel.ts";
import { failure } from "../errors/errors.ts";
import { notRedialled, RedialledChannel } from "../grpc/link/redialled.ts";
import { TimeLimit } from "../time-limit.ts";
import { isTransient } from "../errors/transient.ts";
import { GuestTunnel } from "./tunnel.ts";

/**
 * Limit on calls per connection. At the limit, a new tunnel gets another connection. The agent handles 128 calls per
 * connection (docs/agent/operations.md, Limits) and silently queues further ones. The remaining 16 are reserved for the
 * client's own calls, which never use another connection.
 */
const CALLS_PER_CONNECTION = 112;

/** Functions that create connections in addition to the client's connection. */
interface Dials {
  /** Creates an additional channel, when the existing ones are full. */
  readonly another: () => Promise<Channel>;
  /**
   * Creates a channel that replaces a failed one, with the current address and credentials, which a restore may have
   * changed. Undefined if a failed channel is not replaced.
   */
  readonly instead?: (() => Promise<Channel>) | undefined;
}

/**
 * Opens tunnels over one connection. When this connection has CALLS_PER_CONNECTION tunnels, opens additional
 * connections. If a tunnel cannot be opened because of a transient error, `open` replaces the first connection and
 * tries once more.
 */
export class TunnelOpener {
  readonly #channel: RedialledChannel;
  readonly #dials: Dials;
  /**
   * Additional channels, with the number of open tunnels of each. When the last tunnel of a channel closes, the channel
   * is closed, too.
   */
  readonly #more = new Map<Channel, number>();
  #dialling: Promise<void> | undefined;
  #adding: Promise<void> | undefined;
  #isClosed = false;

  constructor(channel: Channel, dials: Dials) {
    this.#channel = new RedialledChannel(channel, dials.instead ?? (async () => channel));
    this.#dials = dials;
  }

  /**
   * Resolves with an open tunnel. Rejects with GuestError; its status is DEADLINE_EXCEEDED if no attempt has opened the
   * tunnel within the time limit.
   */
  async open(target: number | string, signal: AbortSignal, requestTimeoutMs?: number): Promise<GuestTunnel> {
    const present = this.#channel.current;
    const limit = new TimeLimit(requestTimeoutMs);
    try {
      return await this.#opened(target, signal, limit);
    } catch (error) {
      if (this.#dials.instead === undefined || !isTransient(error) || signal.aborted) throw error;
      if (this.#channel.current === present)
        await limit.within((this.#dialling ??= this.#renew()), notRedialled, signal);
      return this.#opened(target, signal, limit);
    }
  }

  /** Closes the connections that this opener has created, once their tunnels have ended. */
  close(): void {
    this.#isClosed = true;
    this.#channel.close();
    for (const channel of this.#more.keys()) channel.close();
    this.#more.clear();
  }

  async #opened(target: number | string, signal: AbortSignal, limit: TimeLimit): Promise<GuestTunnel> {
    const channel = await limit.within(this.#withRoom(), notRedialled, signal);
    const tunnel = new GuestTunnel(channel, target, { signal, requestTimeoutMs: limit.left() });
    // Ignore the error here, because the caller gets it from `opened`.
    tunnel.on("error", () => undefined);
    const others = this.#more.get(channel);
    if (others !== undefined) {
      this.#more.set(channel, others + 1);
      tunnel.once("close", () => this.#leave(channel));
    }
    await tunnel.opened;
    return tunnel;
  }

  /** Returns a channel with room for another call. If every channel is full, creates a new one. */
  async #withRoom(): Promise<Channel> {
    for (;;) {
      const channel = [this.#channel.current, ...this.#more.keys()].find((each) => each.calls < CALLS_PER_CONNECTION);
      if (channel !== undefined) return channel;
      await (this.#adding ??= this.#add());
    }
  }

  async #add(): Promise<void> {
    try {
      const channel = await this.#dials.another();
      if (this.#isClosed) {
        channel.close();
        throw failure("CANCELLED", "CLIENT_CLOSED", "the port forwarding was closed");
      }
      this.#more.set(channel, 0);
    } finally {
      this.#adding = undefined;
    }
  }

  /**
   * Must be called when a tunnel has closed. If the tunnel was the last one of an additional channel, closes that
   * channel to new calls. Calls that are about to end can still finish.
   */
  #leave(channel: Channel): void {
    const tunnels = this.#more.get(channel);
    if (tunnels === undefined) return;
    if (tunnels > 1) this.#more.set(channel, tunnels - 1);
    else if (this.#more.delete(channel)) channel.close();
  }

  async #renew(): Promise<void> {
    try {
      await this.#channel.renew();
    } finally {
      this.#dialling = undefined;
    }
  }
}
