import type { Socket } from "node:net";
import { clearUnreferenced, type UnacknowledgedMs } from "../domain/index.ts";
import { descriptorOf } from "../internals/index.ts";

/** Limits after which a TCP peer counts as lost. */
export interface LivenessLimits {
  /** If no data waits for the peer, the first keepalive probe is sent after this time without traffic. */
  readonly keepAliveIdleMs: number;
  readonly keepAliveIntervalMs: number;
  /** The peer is lost when its kernel has not answered this many probes. */
  readonly keepAliveProbes: number;
  /** Interval at which the agent asks its own kernel about acknowledgements, while sent data is unacknowledged. */
  readonly checkIntervalMs: number;
  /** The peer is lost when its kernel has not acknowledged sent data for this long. */
  readonly unacknowledgedMs: number;
}

/** With these limits, a lost peer is detected after 20 to 30 seconds. The kernel counts keepalive in whole seconds. */
export const DEFAULT_LIVENESS: LivenessLimits = {
  keepAliveIdleMs: 10_000,
  keepAliveIntervalMs: 5_000,
  keepAliveProbes: 3,
  checkIntervalMs: 5_000,
  unacknowledgedMs: 20_000,
};

/** Errors of a socket whose keepalive probes were not answered. */
const LOST: ReadonlySet<string> = new Set(["ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH"]);

/** Whether a socket ended with this errno because its peer is lost. */
export function isLostPeer(errno: string | undefined): boolean {
  return errno !== undefined && LOST.has(errno);
}

/**
 * Detects a lost TCP peer: one whose kernel no longer acknowledges anything. A peer whose program is suspended or busy
 * is not lost: it may continue its session minutes later, as with ssh.
 *
 * This class asks the kernel when the peer last acknowledged anything (TCP_INFO). The kernel's own timeouts do not
 * suffice:
 *
 * - Keepalive: while data is unacknowledged, the kernel sends no probes, and retransmits for a quarter of an hour.
 * - TCP_USER_TIMEOUT: it would also end the connection of a suspended client (measured: ETIMEDOUT after 4.7 s with a
 *   limit of 4 s).
 */
export class PeerLiveness {
  readonly #socket: Socket;
  readonly #ask: UnacknowledgedMs;
  readonly #limits: LivenessLimits;
  readonly #nowMs: () => number;
  readonly #lost: (silentMs: number) => void;
  #checks: NodeJS.Timeout | undefined;
  /** Time at which the peer stopped acknowledging data; undefined if all data was acknowledged at the last check. */
  #sinceMs: number | undefined;

  /** @param lost is called once, with the time since the last acknowledgement; it must end the connection */
  constructor(
    socket: Socket,
    ask: UnacknowledgedMs,
    limits: LivenessLimits,
    nowMs: () => number,
    lost: (silentMs: number) => void,
  ) {
    this.#socket = socket;
    this.#ask = ask;
    this.#limits = limits;
    this.#nowMs = nowMs;
    this.#lost = lost;
    socket.setKeepAlive(true, limits.keepAliveIdleMs, limits.keepAliveIntervalMs, limits.keepAliveProbes);
    socket.once("close", () => this.#stop());
  }

  /** Call it when data was sent. Starts checks at intervals, which end when all data is acknowledged. */
  sent(): void {
    if (this.#checks !== undefined || this.#socket.destroyed) return;
    this.#checks = setInterval(() => this.#check(), this.#limits.checkIntervalMs).unref();
  }

  #check(): void {
    const fd = descriptorOf(this.#socket);
    const silentMs = fd === undefined ? 0 : this.#ask(fd);
    if (silentMs <= 0) {
      this.#stop();
      return;
    }
    const nowMs = this.#nowMs();
    // On a connection that was idle, the last acknowledgement may be an hour old, although the peer is not lost. So the
    // time without acknowledgements counts only from the first check on.
    this.#sinceMs = Math.max(this.#sinceMs ?? nowMs, nowMs - silentMs);
    if (nowMs - this.#sinceMs < this.#limits.unacknowledgedMs) return;
    this.#stop();
    this.#lost(silentMs);
  }

  #stop(): void {
    clearUnreferenced(this.#checks);
    this.#checks = undefined;
    this.#sinceMs = undefined;
  }
}
