import type { Channel } from "../channel.ts";
import { GuestError, isLost } from "../errors.ts";
import { GuestTunnel } from "./tunnel.ts";

/** Opens tunnels over one connection. Where the agent does not accept that, opens them over a new one from then on. */
export class TunnelOpener {
  readonly #given: Channel;
  readonly #dial: (() => Promise<Channel>) | undefined;
  #channel: Channel;
  #dialling: Promise<void> | undefined;

  /** @param dial where a restore may have changed address and credentials; its channels are the opener's own */
  constructor(channel: Channel, dial?: () => Promise<Channel>) {
    this.#given = channel;
    this.#channel = channel;
    this.#dial = dial;
  }

  /** Resolves with a tunnel that is open. Rejects with GuestError. */
  async open(target: number | string, signal: AbortSignal): Promise<GuestTunnel> {
    const channel = this.#channel;
    try {
      return await opened(channel, target, signal);
    } catch (error) {
      if (this.#dial === undefined || !isNotTaken(error) || signal.aborted) throw error;
      if (this.#channel === channel) await (this.#dialling ??= this.#change(this.#dial));
      return opened(this.#channel, target, signal);
    }
  }

  /** Closes a connection of its own once its tunnels have ended. */
  close(): void {
    if (this.#channel !== this.#given) this.#channel.close();
  }

  async #change(dial: () => Promise<Channel>): Promise<void> {
    try {
      const fresh = await dial();
      this.close();
      this.#channel = fresh;
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

/** Whether the agent did not accept the connection or the token; not if it is ending. */
function isNotTaken(error: unknown): boolean {
  return isLost(error) || (error instanceof GuestError && error.status === "UNAUTHENTICATED");
}
