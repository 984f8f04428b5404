import type { Channel } from "../channel.ts";
import { RedialledChannel } from "../link/redialled.ts";
import { isTransient } from "../transient.ts";
import { GuestTunnel } from "./tunnel.ts";

/** Opens tunnels over one connection. Where the agent does not accept that, opens them over a new one from then on. */
export class TunnelOpener {
  readonly #channel: RedialledChannel;
  readonly #mayDial: boolean;
  #dialling: Promise<void> | undefined;

  /** @param dial where a restore may have changed address and credentials; its channels are the opener's own */
  constructor(channel: Channel, dial?: () => Promise<Channel>) {
    this.#channel = new RedialledChannel(channel, dial ?? (async () => channel));
    this.#mayDial = dial !== undefined;
  }

  /** Resolves with a tunnel that is open. Rejects with GuestError. */
  async open(target: number | string, signal: AbortSignal): Promise<GuestTunnel> {
    const channel = this.#channel.current;
    try {
      return await opened(channel, target, signal);
    } catch (error) {
      if (!this.#mayDial || !isTransient(error) || signal.aborted) throw error;
      if (this.#channel.current === channel) await (this.#dialling ??= this.#renew());
      return opened(this.#channel.current, target, signal);
    }
  }

  /** Closes a connection of its own once its tunnels have ended. */
  close(): void {
    this.#channel.close();
  }

  async #renew(): Promise<void> {
    try {
      await this.#channel.renew();
    } finally {
      this.#dialling = undefined;
    }
  }
}

async function opened(channel: Channel, target: number | string, signal: AbortSignal): Promise<GuestTunnel> {
  const tunnel = new GuestTunnel(channel, target, { signal });
  // The rejection of `opened` tells the caller.
  tunnel.on("error", () => undefined);
  await tunnel.opened;
  return tunnel;
}
