import type { Socket } from "node:net";
import type { UnacknowledgedMs } from "../domain/index.ts";
import { descriptorOf } from "../internals/index.ts";

/** When a TCP peer counts as lost. */
export interface LivenessLimits {
  /** A connection on which nothing waits for the peer is probed after this time, and then at this interval. */
  readonly keepAliveIdleMs: number;
  readonly keepAliveIntervalMs: number;
  /** The peer is lost when its kernel has left this many probes unanswered. */
  readonly keepAliveProbes: number;
  /** How often the agent asks its kernel, while sent data is not acknowledged. */
  readonly checkIntervalMs: number;
  /** The peer is lost when its kernel has not acknowledged sent data for this long. */
  readonly unacknowledgedMs: number;
}

/** Either way a lost peer is found after 20 to 30 seconds. Keepalive has whole seconds. */
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
 * Finds a TCP peer that is lost, by what its kernel acknowledges. What the peer's program does is no sign: a client
 * that is suspended or busy for minutes comes back to its session, as with ssh.
 *
 * While nothing waits for the peer, the kernel's keepalive probes it. While data does, keepalive rests, and the kernel
 * would go on for a quarter of an hour: then this class asks for the progress (TCP_INFO). TCP_USER_TIMEOUT would do
 * neither: it ends the connection of a peer that acknowledges probes of its closed window, as the kernel of a suspended
 * client does (ETIMEDOUT after 4.7 s with a limit of 4 s).
 *
 * Unix sockets and streams in memory need nothing of this: their peer's end is always seen.
 */
export class PeerLiveness {
  readonly #socket: Socket;
  readonly #ask: UnacknowledgedMs;
  readonly #limits: LivenessLimits;
  readonly #nowMs: () => number;
  readonly #lost: (silentMs: number) => void;
  #checks: NodeJS.Timeout | undefined;
  /** Since when data has been waiting without any acknowledgement. Undefined: none was at the last check. */
  #sinceMs: number | undefined;

  /** @param lost is called once, with the time since the last acknowledgement; the callee ends the connection */
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

  /** Data was sent: checks until all of it is acknowledged. Costs nothing while checks go on. */
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
    // An idle connection's last acknowledgement may be an hour old when data is sent: count from the first check.
    this.#sinceMs = Math.max(this.#sinceMs ?? nowMs, nowMs - silentMs);
    if (nowMs - this.#sinceMs < this.#limits.unacknowledgedMs) return;
    this.#stop();
    this.#lost(silentMs);
  }

  #stop(): void {
    clearInterval(this.#checks);
    this.#checks = undefined;
    this.#sinceMs = undefined;
  }
}
