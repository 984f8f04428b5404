import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { debuglog } from "node:util";
import { type ChannelCredentials, type ChannelOptions, credentials } from "@grpc/grpc-js";
import { messageOf } from "../../../../shared/errors.ts";
import type { ErrorCode } from "../../errors/error-codes.ts";
import type { Cause } from "../grpc-texts.ts";
import { attempt, AttemptError } from "./attempt.ts";
import type { Endpoint } from "./endpoint.ts";
import { firstBytes, PREFACE_BYTES } from "./first-bytes.ts";
import type { Link } from "./link.ts";
import { listenPrivately, type PrivateListener } from "./private-listener.ts";
import { publish } from "../tracing.ts";

/** Time limit of an attempt to connect if the client sets no limit. */
const UNLIMITED_MS = 10_000;
/** Longest delay that Node's timers accept. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/**
 * Share of the client's connect timeout that the attempts may use. The rest is a reserve, so that the reason of a
 * failure is known before the timeout.
 */
const SHARE_OF_LIMIT = 0.9;

/** Debug output on stderr, enabled by NODE_DEBUG=guest-agent-client. */
const debug = debuglog("guest-agent-client");

/** Causes that would be the same at every address. After such a failure, the remaining addresses are not tried. */
const FINAL: ReadonlySet<ErrorCode> = new Set([
  "CLIENT_CERTIFICATE_EXPIRED",
  "CLIENT_CERTIFICATE_REFUSED",
  "CLIENT_CERTIFICATE_TOO_LONG",
  "SERVER_CERTIFICATE_EXPIRED",
  "SERVER_CERTIFICATE_NOT_YET_VALID",
  "SERVER_CERTIFICATE_UNTRUSTED",
  "SERVER_NAME_MISMATCH",
]);

/**
 * Connects to an agent if grpc-js cannot dial the agent's address, or if there are several addresses. Of several
 * addresses, uses the first one that answers.
 *
 * grpc-js dials a private listener on this machine instead of the agent. For each connection that the listener accepts,
 * this class connects to an endpoint and joins the two connections.
 */
export class DialledLink implements Link {
  readonly target: string;
  readonly credentials: ChannelCredentials = credentials.createInsecure();
  readonly options: ChannelOptions = {};
  readonly #endpoints: readonly Endpoint[];
  /** The addresses of the client, as the events of the connection report them. */
  readonly #name: string;
  readonly #limitMs: number;
  readonly #listener: PrivateListener;
  #failure: Cause | undefined;
  /** The failures of the dial in progress, and the step that it is waiting for. */
  #pending: Cause | undefined;
  #inUse: string | undefined;

  /** @param connectTimeoutMs time limit until a connection is ready, for all endpoints together */
  constructor(endpoints: readonly Endpoint[], connectTimeoutMs: number) {
    this.#endpoints = endpoints;
    this.#name = endpoints.map(({ address }) => address).join(",");
    this.#limitMs = Number.isFinite(connectTimeoutMs)
      ? Math.min(connectTimeoutMs * SHARE_OF_LIMIT, LONGEST_TIMER_MS)
      : endpoints.length * UNLIMITED_MS;
    this.#listener = listenPrivately(
      "dial",
      "ADDRESS_UNREACHABLE",
      (socket) => void this.#join(socket),
      (cause) => (this.#failure = cause),
    );
    this.target = this.#listener.target;
  }

  failure(): Cause | undefined {
    return this.#failure;
  }

  /**
   * Says why the dial in progress has not succeeded yet. This is needed if a call fails before the dial does: the
   * call's deadline is earlier than that of the dial, or the program was busy.
   */
  explain(): Promise<Cause | undefined> {
    return Promise.resolve(this.#pending);
  }

  inUse(): string | undefined {
    return this.#inUse;
  }

  close(): void {
    this.#listener.close();
  }

  async #join(socket: Socket): Promise<void> {
    // First read the HTTP/2 preface of grpc-js, because each endpoint that is tried must receive it. grpc-js sends the
    // preface in one write, and nothing more until a server answers.
    const preface = await firstBytes(socket, PREFACE_BYTES);
    const stream = await this.#dial(preface, socket);
    if (stream === undefined) socket.destroy();
    else join(socket, stream);
  }

  /**
   * Returns a connection to the first endpoint that answers. If no endpoint answers, returns undefined, and `#failure`
   * has the reason.
   */
  async #dial(preface: Buffer, socket: Socket): Promise<Duplex | undefined> {
    const beganMs = performance.now();
    const endMs = beganMs + this.#limitMs;
    const causes: Cause[] = [];
    for (const [index, endpoint] of this.#endpoints.entries()) {
      if (socket.destroyed) return undefined;
      const limitMs = Math.max(0, endMs - performance.now()) / (this.#endpoints.length - index);
      const onStep = (step: Cause): void => {
        this.#pending = summary([...causes, atEndpoint(endpoint, step)]);
      };
      try {
        const stream = await attempt(endpoint, preface, limitMs, onStep);
        this.#failure = undefined;
        this.#inUse = endpoint.address;
        publish({ event: "connected", target: this.#name, address: endpoint.address });
        debug("%s: connected after %d ms", endpoint.address, Math.round(performance.now() - beganMs));
        return stream;
      } catch (error) {
        // An error that is not an AttemptError means that this process lacks the resources for an attempt.
        const reason: Cause =
          error instanceof AttemptError ? error.reason : { code: "ADDRESS_UNREACHABLE", message: messageOf(error) };
        const cause = atEndpoint(endpoint, reason);
        causes.push(cause);
        publish({ event: "failed", target: this.#name, address: endpoint.address, reason: cause.message });
        debug("%s", cause.message);
        if (FINAL.has(reason.code)) break;
      } finally {
        this.#pending = undefined;
      }
    }
    this.#failure = summary(causes);
    return undefined;
  }
}

function atEndpoint({ address }: Endpoint, { code, message }: Cause): Cause {
  return { code, message: `${address}: ${message}` };
}

/** Joins the messages of all causes into one cause, which has the code of the last one. */
function summary(causes: readonly Cause[]): Cause | undefined {
  const last = causes.at(-1);
  return last && { code: last.code, message: causes.map(({ message }) => message).join("; ") };
}

/** Pipes each stream into the other, including EOF and backpressure. If one stream breaks, destroys the other. */
function join(socket: Socket, stream: Duplex): void {
  stream.on("error", () => socket.destroy());
  stream.once("close", () => socket.destroy());
  socket.once("close", () => stream.destroy());
  socket.pipe(stream);
  stream.pipe(socket);
}
