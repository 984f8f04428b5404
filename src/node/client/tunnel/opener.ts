import type { Channel } from "../channel.ts";
import { failure } from "../errors.ts";
import { RedialledChannel } from "../link/redialled.ts";
import { isTransient } from "../transient.ts";
import { GuestTunnel } from "./tunnel.ts";

/**
 * Calls on a connection above which a tunnel gets another one. The agent takes 128 calls on a connection
 * (docs/agent/operations.md, Limits), and further ones wait there without a word. The others are for the client's own
 * calls, which do not look for another connection.
 */
const CALLS_PER_CONNECTION = 112;

/** How tunnels get connections beside the client's. */
interface Dials {
  /** Makes a channel beside the present one, for more tunnels than that carries. */
  readonly another: () => Promise<Channel>;
  /** Makes a channel in the place of one that failed, where a restore may have changed address and credentials. */
  readonly instead?: (() => Promise<Channel>) | undefined;
}

/**
 * Opens tunnels over one connection, and over further ones where that is full. Where the agent does not accept the
 * first one, opens them over a new one from then on.
 */
export class TunnelOpener {
  readonly #channel: RedialledChannel;
  readonly #dials: Dials;
  /** Further channels, with their tunnels. One that has none left is closed. */
  readonly #more = new Map<Channel, number>();
  #dialling: Promise<void> | undefined;
  #adding: Promise<void> | undefined;
  #isClosed = false;

  constructor(channel: Channel, dials: Dials) {
    this.#channel = new RedialledChannel(channel, dials.instead ?? (async () => channel));
    this.#dials = dials;
  }

  /** Resolves with a tunnel that is open. Rejects with GuestError. */
  async open(target: number | string, signal: AbortSignal): Promise<GuestTunnel> {
    const present = this.#channel.current;
    try {
      return await this.#opened(target, signal);
    } catch (error) {
      if (this.#dials.instead === undefined || !isTransient(error) || signal.aborted) throw error;
      if (this.#channel.current === present) await (this.#dialling ??= this.#renew());
      return this.#opened(target, signal);
    }
  }

  /** Closes connections of its own once their tunnels have ended. */
  close(): void {
    this.#isClosed = true;
    this.#channel.close();
    for (const channel of this.#more.keys()) channel.close();
    this.#more.clear();
  }

  async #opened(target: number | string, signal: AbortSignal): Promise<GuestTunnel> {
    const channel = await this.#withRoom();
    const tunnel = new GuestTunnel(channel, target, { signal });
    // The rejection of `opened` tells the caller.
    tunnel.on("error", () => undefined);
    const others = this.#more.get(channel);
    if (others !== undefined) {
      this.#more.set(channel, others + 1);
      tunnel.once("close", () => this.#leave(channel));
    }
    await tunnel.opened;
    return tunnel;
  }

  /** A channel that takes another call. */
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
        throw failure("CANCELLED", "CLIENT_CLOSED", "the forwarding has been closed");
      }
      this.#more.set(channel, 0);
    } finally {
      this.#adding = undefined;
    }
  }

  /** A tunnel of a further channel is closed. Closing a channel lets calls that are still ending end. */
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
