import type { MessageShape } from "@bufbuild/protobuf";
import {
  ListPortsResponseSchema,
  Tunnel,
  WaitForPortResponseSchema,
  WatchPortsResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { checkOptions, limitOf, wholeNumber } from "../arguments.ts";
import type { CallOptions, Channel } from "../grpc/channel.ts";
import { GuestError, isLost } from "../errors/errors.ts";
import type { ConnectOptions } from "../grpc/link/link.ts";
import { openCurrent } from "../grpc/link/open.ts";
import type { PortChanges, PortList, PortWait } from "../lifecycle/messages.ts";
import { CALL, type Names } from "../options.ts";
import { plain } from "../plain.ts";
import { received } from "../grpc/received.ts";
import { growingPauses, retried } from "../grpc/retry.ts";
import { forward, FORWARD_NAMES, type Forwarding, type ForwardOptions } from "./forward.ts";
import { TunnelOpener } from "./opener.ts";
import { GuestTunnel } from "./tunnel.ts";

/** Options of `waitFor`. */
export interface WaitForPortOptions extends CallOptions {
  /** Longest wait for the port, in milliseconds. Infinity means no limit. Default: 30 s. */
  readonly timeoutMs?: number | undefined;
}

const WAIT: Names<WaitForPortOptions> = { ...CALL, timeoutMs: true };

/**
 * Default of `timeoutMs`. The agent has the same default; the client needs it as well, because the client's retries
 * must end at the same time.
 */
const DEFAULT_WAIT_MS = 30_000;
/** The longest time that the agent waits for a port in one call. */
const LONGEST_CALL_MS = 86_400_000;
/** Limit on attempts while no connection has been made yet, so that a wrong address fails soon. */
const FIRST_TRIES = 3;
const LONGEST_PAUSE_MS = 2_000;

/** Ports and unix sockets of the sandbox. Each method rejects with GuestError. */
export class Ports {
  readonly #channel: Channel;
  readonly #connectOptions: ConnectOptions;

  constructor(channel: Channel, connectOptions: ConnectOptions) {
    this.#channel = channel;
    this.#connectOptions = connectOptions;
  }

  /**
   * Connects to a TCP port of the guest's loopback, or to the unix socket at an absolute path, as net.connect does
   * locally. The stream fails with the agent's errors: PORT_REFUSED if nothing listens, PORT_UNREACHABLE if there is no
   * answer, PORT_RESET if the connection is reset.
   */
  connect(target: number | string, options: CallOptions = {}): GuestTunnel {
    checkOptions("the options of connect()", options, CALL);
    return new GuestTunnel(this.#channel, target, options);
  }

  /** Listens locally and connects each client to a port or unix socket of the guest, until the forwarding is closed. */
  async forward(options: ForwardOptions): Promise<Forwarding> {
    checkOptions("the options of forward()", options, FORWARD_NAMES);
    const { connectOptions } = options;
    const another = (): Promise<Channel> => openCurrent(connectOptions, this.#connectOptions);
    const dials = { another, instead: connectOptions && another };
    return forward(options, new TunnelOpener(this.#channel, dials));
  }

  /**
   * Resolves once a process listens on a TCP port at an address that `connect` can reach. The result also says from
   * where else the port can be reached. Rejects with PORT_NOT_LISTENING when `timeoutMs` has passed.
   */
  async waitFor(port: number, options: WaitForPortOptions = {}): Promise<PortWait> {
    checkOptions("the options of waitFor()", options, WAIT);
    const { timeoutMs = DEFAULT_WAIT_MS, ...call } = options;
    const { signal } = call;
    const number = wholeNumber(port, "port");
    const startMs = performance.now();
    const untilMs = startMs + (limitOf(timeoutMs, "timeoutMs") ?? Number.POSITIVE_INFINITY);
    const requestUntilMs = startMs + (limitOf(call.requestTimeoutMs, "requestTimeoutMs") ?? Number.POSITIVE_INFINITY);
    let tries = 0;
    const ask = (): Promise<MessageShape<typeof WaitForPortResponseSchema>> => {
      tries += 1;
      const nowMs = performance.now();
      const waitMs = untilMs === Number.POSITIVE_INFINITY ? LONGEST_CALL_MS : Math.max(1, Math.ceil(untilMs - nowMs));
      const requestTimeoutMs = Math.max(0, requestUntilMs - nowMs);
      return this.#channel.unary(
        Tunnel.method.waitForPort,
        { port: number, timeoutMs: waitMs },
        { ...call, requestTimeoutMs },
      );
    };
    // If there has been a connection, the address is right, so repeat the call after lost connections until the
    // timeout. Also repeat it if the caller set no timeout and the call ends after a day, which is the longest that the
    // agent waits.
    const isTransient = (error: unknown): boolean =>
      isLost(error)
        ? this.#channel.wasConnected || tries < FIRST_TRIES
        : untilMs === Number.POSITIVE_INFINITY && error instanceof GuestError && error.reason === "PORT_NOT_LISTENING";
    const how = { pausesMs: growingPauses(LONGEST_PAUSE_MS), untilMs: Math.min(untilMs, requestUntilMs), isTransient };
    const { target } = this.#channel;
    return plain(WaitForPortResponseSchema, await retried(ask(), ask, { ...how, signal, target }));
  }

  /** Lists the TCP ports on which processes of the guest listen now, at any address. */
  async list(options?: CallOptions): Promise<PortList> {
    checkOptions("the options of list()", options, CALL);
    return plain(ListPortsResponseSchema, await this.#channel.question(Tunnel.method.listPorts, {}, options));
  }

  /**
   * Yields the ports that `list` returns, and then each change, until the caller leaves the loop, the client is closed
   * or the connection is lost. Restore steps also close the connection.
   */
  watch(options: CallOptions = {}): AsyncIterableIterator<PortChanges, undefined, undefined> {
    checkOptions("the options of watch()", options, CALL);
    return received(this.#channel, Tunnel.method.watchPorts, {}, options, {
      decode: (message) => [plain(WatchPortsResponseSchema, message)],
      closed: this.#channel.closed,
    });
  }
}
