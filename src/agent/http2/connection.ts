import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { afterArrivals, clearUnreferenced, reportInternalError } from "../domain/index.ts";
import { receiveAll, writeEach, writeJoined } from "../internals/index.ts";
import { DEFAULT_HTTP2_LIMITS, type Http2Limits } from "./limits.ts";
import type { SecretField } from "./hpack.ts";
import { ThrottledInput, type ThrottledInputOptions } from "./throttled-input.ts";
import { ConnectionError, ErrorCode, errorName } from "./protocol.ts";
import type { RequestFields } from "./request-fields.ts";
import { Http2Machine } from "./machine.ts";
import { writeInTurns } from "./write-in-turns.ts";
import type { Http2Stream } from "./stream.ts";

/** Largest write to the socket. Larger writes would not speed up large responses, but they would delay small ones. */
const WRITE_BYTES = 256 * 1024;
/** A closing connection is destroyed if its peer has read nothing for this long. */
const IDLE_CLOSE_MS = 1_000;
/** A closing connection is destroyed this long after closing began, whatever its peer does. */
const MAX_CLOSE_MS = 5_000;
/** Interval at which the agent checks whether a peer that has closed its sending side still reads. */
const HALF_CLOSED_PROBE_MS = 1_000;
/** A half-closed connection is closed if its peer has read none of the waiting data for this long. */
const HALF_CLOSED_IDLE_MS = 40_000;
/** A draining connection is closed if its peer has not answered a PING for this long. */
const DRAINING_SILENT_MS = 60_000;
/** Deadline for closing a connection without an authenticated request. The agent reads nothing more from it. */
const UNAUTHENTICATED_END_MS = 500;

/** An accepted socket, or a stream in memory. A stream in memory has no address and cannot be reset. */
type RawSocket = Duplex & Partial<Pick<Socket, "remoteAddress" | "resetAndDestroy">>;

const SETTLED = Promise.resolve();

/** Deadlines and throttling of a connection. The limits of the protocol are in DEFAULT_HTTP2_LIMITS. */
export interface ConnectionLimits {
  /** Milliseconds after which a connection without a request is closed, counted from the handshake. */
  readonly firstRequestMs: number;
  /** Interval between PINGs, which show whether the peer's program responds. If undefined, no PINGs are sent. */
  readonly pingIntervalMs?: number;
  readonly http2?: Partial<Http2Limits>;
  /** Throttles input until `markAuthenticated` is called. If undefined, peers count as authenticated from the start. */
  readonly probation?: ThrottledInputOptions;
  /** Throttles input during the whole connection. Used only without `probation`. Default: no throttling. */
  readonly pace?: ThrottledInputOptions;
  /** A request header field with a secret value, which the connection conceals and does not store. */
  readonly secret?: SecretField;
  /** Largest write to the socket, in bytes. If undefined, writes are not limited. */
  readonly writeBytes?: number | undefined;
}

/** What an HTTP/2 connection reports to its owner. */
export interface ConnectionEvents {
  /** Called for a new request. Set the consumer of its stream before this returns. */
  request(stream: Http2Stream, fields: RequestFields): void;
  /** Called when the peer was refused, or violated the protocol or a limit. */
  failed(reason: string): void;
  /** Called when bytes were written to the socket. */
  sent?(): void;
  /** Called when the connection stops accepting requests. */
  closing(): void;
  /** Called when the socket is closed. */
  gone(): void;
}

/**
 * An HTTP/2 connection and the life cycle of its socket:
 *
 *     serving ──► draining: no new requests, running requests continue
 *        │            │
 *        └────────────┴──► closing: only complete responses are written ──► gone: the socket is closed
 *
 * `closing` has a deadline. Then the socket is destroyed, whatever the peer does.
 */
export class Http2Connection {
  readonly #socket: Duplex;
  readonly #raw: RawSocket;
  readonly #events: ConnectionEvents;
  readonly #limits: ConnectionLimits;
  readonly #nowMs: () => number;
  readonly #machine: Http2Machine;
  /** Whether the peer was authenticated, so that it may make requests. */
  #isAuthenticated: boolean;
  /** Throttles the input; undefined once input is no longer throttled. */
  #input: ThrottledInput | undefined;
  #state: "serving" | "draining" | "closing" | "gone" = "serving";
  #served = false;
  /** Whether the state machine is processing input. Its output is flushed only after all of this input is processed. */
  #receiving = false;
  #flushIsWanted = false;
  #flushIsDue = false;
  #writing = false;
  /** Whether the peer has answered the PINGs after the GOAWAY. The peer then sends no more requests. */
  #isEndAcknowledged = false;
  #halfClosed = false;
  #deadline: NodeJS.Timeout | undefined;
  #endBeganMs = 0;
  /** Last time when the peer had read everything that was written. */
  #lastReadMs = 0;
  #cancelFirstRequest: (() => void) | undefined;
  #pings: NodeJS.Timeout | undefined;
  #pingSentMs: number | undefined;

  /**
   * @param socket the stream that carries HTTP/2: the accepted socket, or the TLS socket over it
   * @param raw the accepted socket; without TLS it is the same as `socket`
   * @param nowMs a monotonic clock
   */
  constructor(socket: Duplex, raw: RawSocket, limits: ConnectionLimits, events: ConnectionEvents, nowMs: () => number) {
    this.#socket = socket;
    this.#raw = raw;
    this.#limits = limits;
    this.#events = events;
    this.#nowMs = nowMs;
    this.#machine = new Http2Machine({
      limits: { ...DEFAULT_HTTP2_LIMITS, ...limits.http2 },
      nowMs,
      secret: limits.secret,
      events: {
        request: (stream, fields) => this.#onRequest(stream, fields),
        output: () => this.#flushSoon(),
        maybeIdle: () => this.#flushSoon(),
        failed: (error) => this.#onFailure(error),
      },
    });
    const { probation, pace = probation } = limits;
    this.#isAuthenticated = probation === undefined;
    if (this.#isAuthenticated) this.#machine.markAuthenticated();
    if (pace !== undefined) {
      this.#input = new ThrottledInput(socket, pace, {
        read: this.#receive,
        ended: this.#onInputEnd,
        exceeded: (problem) => this.#fail(ErrorCode.ENHANCE_YOUR_CALM, problem),
      });
    }
    // Every error is followed by "close", which is handled below. Without a listener Node would throw the error.
    socket.on("error", () => {});
    raw.once("close", this.#onClose);
  }

  serve(): void {
    const { firstRequestMs, pingIntervalMs } = this.#limits;
    receiveAll(this.#socket, (chunk) => {
      if (this.#input === undefined) this.#receive(chunk);
      else this.#input.add(chunk);
    });
    this.#socket.once("end", () => {
      if (this.#input === undefined) this.#onInputEnd();
      else this.#input.endInput();
    });
    const late = this.#entry(() => {
      // ENHANCE_YOUR_CALM is not used, because gRPC clients report it as RESOURCE_EXHAUSTED "Bandwidth exhausted".
      const reason = `no request within ${firstRequestMs} ms of the handshake`;
      this.#events.failed(reason);
      this.close(reason);
    });
    this.#cancelFirstRequest = afterArrivals(firstRequestMs, late, false);
    if (pingIntervalMs !== undefined) {
      const ping = this.#entry(() => this.#ping());
      this.#pings = setInterval(ping, pingIntervalMs).unref();
    }
    // Over TLS, sends at once. Without TLS, waits for the client's preface: on vsock, the VMM first sends a line "OK"
    // of its own, and a client might lose bytes that arrive together with this line.
    if (this.#socket !== this.#raw) this.#flushSoon();
  }

  /** Age of the unanswered PING in milliseconds; 0 if there is none. For example, a suspended client answers none. */
  get silentMs(): number {
    return this.#pingSentMs === undefined ? 0 : this.#nowMs() - this.#pingSentMs;
  }

  /** Call it when a request of the peer was authenticated. The peer's input is not throttled from then on. */
  markAuthenticated(): void {
    if (this.#isAuthenticated || this.#state === "gone") return;
    this.#isAuthenticated = true;
    this.#machine.markAuthenticated();
    const input = this.#input;
    this.#input = undefined;
    input?.trust();
  }

  /** Closes the connection once all requests are complete, or at once if the peer was not authenticated. */
  drain(): void {
    if (this.#state !== "serving") return;
    if (!this.#isAuthenticated) {
      this.close();
      return;
    }
    this.#state = "draining";
    this.#events.closing();
    this.#machine.goAway(false);
    // A client may answer the first PING before it handles the GOAWAY, and then still send requests. So only the answer
    // to the second PING shows that no more requests will come.
    this.#machine.ping(() => {
      this.#machine.ping(() => {
        this.#isEndAcknowledged = true;
        this.#flushSoon();
      });
    });
  }

  /** Writes complete responses, drops incomplete ones, and closes. The GOAWAY contains `reason`. */
  close(reason = ""): void {
    if (this.#state === "closing" || this.#state === "gone") return;
    if (this.#state === "serving") this.#events.closing();
    this.#state = "closing";
    this.#stopTimers();
    if (this.#machine.failure === undefined) this.#machine.goAway(true, ErrorCode.NO_ERROR, reason);
    this.#machine.drop("unanswered", ErrorCode.CONNECT_ERROR);
    this.#input?.stop();
    this.#beginDeadline();
    this.#flushSoon();
  }

  /**
   * Ends a connection after a restore, because clones of this guest may have the same TLS keys. An idle connection is
   * destroyed, and the kernel's send buffer is discarded, so that nothing more is encrypted with these keys. Otherwise,
   * complete responses are still sent. A closing connection is left alone: its last response may be in flight.
   */
  closeAfterRestore(): void {
    this.#machine.drop("unanswered", ErrorCode.CONNECT_ERROR);
    const isIdle = this.#machine.streams.size === 0 && !this.#writing;
    if (isIdle && this.#state === "serving") this.#destroy(true);
    else this.close();
  }

  /** Destroys the socket at once and discards the data that the kernel has not sent yet. */
  abandon(): void {
    this.#destroy(true);
  }

  /** Wraps a callback of the event loop. If it throws, the error is logged and only this connection is destroyed. */
  #entry<Args extends readonly unknown[]>(run: (...args: Args) => void): (...args: Args) => void {
    return (...args) => {
      try {
        run(...args);
      } catch (error) {
        this.#destroy(true);
        throw error;
      }
    };
  }

  readonly #receive: (chunk: Buffer) => void = this.#entry((chunk) => {
    // A peer that sends anything, such as WINDOW_UPDATE, is not idle.
    if (this.#state === "closing") this.#lastReadMs = this.#nowMs();
    if (this.#halfClosed) return;
    this.#receiving = true;
    this.#machine.receive(chunk);
    this.#receiving = false;
    // A complete response is flushed at once: waiting gains nothing, because no later output could share its write.
    if (this.#machine.hasAnswer) this.#flush();
    else if (this.#flushIsWanted) this.#flushSoon();
  });

  #onRequest(stream: Http2Stream, fields: RequestFields): void {
    if (!this.#served) {
      this.#served = true;
      this.#cancelFirstRequest?.();
    }
    if (this.#deadline !== undefined && this.#state === "draining") {
      clearTimeout(this.#deadline);
      this.#deadline = undefined;
    }
    try {
      this.#events.request(stream, fields);
    } catch (error) {
      reportInternalError(error);
      stream.reset(ErrorCode.INTERNAL_ERROR);
    }
  }

  /** The peer has closed its sending side. Without TLS it may still read, so complete requests are answered. */
  readonly #onInputEnd: () => void = this.#entry(() => {
    // If the connection is already closing, there is nothing to do: its deadline will end it.
    if (this.#state === "closing" || this.#state === "gone") return;
    if (this.#socket !== this.#raw || this.#machine.streams.size === 0) {
      this.close();
      return;
    }
    this.#stopTimers();
    // A peer that has closed its sending side cannot answer a PING.
    this.#pingSentMs = undefined;
    this.#lastReadMs = this.#nowMs();
    this.#machine.peerIsLeaving = true;
    const probe = this.#entry(() => {
      this.#machine.drop("waiting_for_peer", ErrorCode.CONNECT_ERROR);
      // Writing a GOAWAY tests whether the peer still reads: if the peer is gone, the write fails.
      this.#machine.goAway(false);
      if (this.#writing && this.#nowMs() - this.#lastReadMs > HALF_CLOSED_IDLE_MS) this.close();
    });
    this.#pings = setInterval(probe, HALF_CLOSED_PROBE_MS).unref();
    probe();
  });

  #fail(code: number, reason: string): void {
    this.#machine.fail(new ConnectionError(code, reason));
  }

  #onFailure(error: ConnectionError): void {
    this.#events.failed(`${error.message} (${errorName(error.code)})`);
    this.close();
  }

  readonly #onClose: () => void = this.#entry(() => {
    this.#state = "gone";
    this.#stopTimers();
    clearTimeout(this.#deadline);
    this.#input?.stop();
    this.#machine.drop("all", ErrorCode.CONNECT_ERROR);
    this.#events.gone();
  });

  // --- writing

  /** Flushes at the end of this tick of the event loop, so that a response is one write and one TLS record. */
  #flushSoon(): void {
    if (this.#receiving) this.#flushIsWanted = true;
    if (this.#receiving || this.#flushIsDue || this.#writing) return;
    this.#flushIsDue = true;
    void SETTLED.then(this.#afterMicrotasks);
  }

  readonly #afterMicrotasks = (): void => process.nextTick(this.#flush);

  readonly #flush: () => void = this.#entry(() => {
    this.#flushIsDue = false;
    this.#flushIsWanted = false;
    if (this.#writing || this.#state === "gone") return;
    const batch = this.#machine.take(WRITE_BYTES);
    if (batch === undefined) {
      this.#onIdle();
      return;
    }
    this.#writing = true;
    const written = this.#entry(() => {
      this.#writing = false;
      this.#lastReadMs = this.#nowMs();
      batch.release();
      this.#flush();
    });
    const { chunks, sizeBytes } = batch;
    const { writeBytes = sizeBytes } = this.#limits;
    if (sizeBytes > writeBytes) writeInTurns(this.#socket, Buffer.concat(chunks, sizeBytes), writeBytes, written);
    else if (this.#socket === this.#raw) writeEach(this.#socket, chunks, written);
    else writeJoined(this.#socket, chunks, sizeBytes, written);
    this.#events.sent?.();
  });

  /** Called when nothing is queued or being written. */
  #onIdle(): void {
    if (this.#state === "serving" && !this.#machine.peerIsLeaving) return;
    if (this.#machine.streams.size > 0) return;
    if (this.#state === "serving" || (this.#state === "draining" && this.#isEndAcknowledged)) this.close();
    else if (this.#state === "draining") this.#beginDeadline();
    else if (!this.#halfClosed) this.#halfClose();
  }

  #halfClose(): void {
    this.#halfClosed = true;
    this.#socket.end();
  }

  // --- closing

  #beginDeadline(): void {
    if (this.#deadline !== undefined) return;
    this.#endBeganMs = this.#nowMs();
    this.#lastReadMs = this.#endBeganMs;
    this.#deadline = setTimeout(this.#checkDeadline, this.#isAuthenticated ? IDLE_CLOSE_MS : UNAUTHENTICATED_END_MS);
  }

  readonly #checkDeadline: () => void = this.#entry(() => {
    const longestMs = this.#isAuthenticated ? MAX_CLOSE_MS : UNAUTHENTICATED_END_MS;
    const leftMs = Math.min(this.#lastReadMs + IDLE_CLOSE_MS, this.#endBeganMs + longestMs) - this.#nowMs();
    if (leftMs > 0) this.#deadline = setTimeout(this.#checkDeadline, Math.ceil(leftMs));
    else this.#destroy(this.#writing);
  });

  /** With `reset`, the kernel discards the data that it has not sent yet. Without `reset`, it still sends this data. */
  #destroy(reset: boolean): void {
    if (reset && this.#raw.remoteAddress) this.#raw.resetAndDestroy?.();
    else this.#raw.destroy();
  }

  #ping(): void {
    if (this.#pingSentMs !== undefined) {
      if (this.#state === "draining" && this.silentMs >= DRAINING_SILENT_MS) this.close();
      return;
    }
    this.#pingSentMs = this.#nowMs();
    this.#machine.ping(() => {
      this.#pingSentMs = undefined;
    });
  }

  #stopTimers(): void {
    this.#cancelFirstRequest?.();
    clearUnreferenced(this.#pings);
  }
}
