import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { reportBug } from "../domain/index.ts";
import { receiveAll, writeEach, writeJoined } from "../internals/index.ts";
import { DEFAULT_HTTP2_LIMITS, type Http2Limits } from "./limits.ts";
import type { SecretField } from "./hpack.ts";
import { PacedInput, type PacedInputLimits } from "./paced-input.ts";
import { ConnectionError, ErrorCode, errorName } from "./protocol.ts";
import type { RequestFields } from "./request-fields.ts";
import { Http2Machine } from "./machine.ts";
import type { Http2Stream } from "./stream.ts";

/** Largest write to the socket. More would not speed up large answers, and small ones would wait longer behind them. */
const WRITE_BYTES = 256 * 1024;
/** A closing connection is destroyed when its peer has taken nothing for this long. */
const IDLE_END_MS = 1_000;
/** A closing connection is destroyed at the latest this long after closing began. */
const LONGEST_END_MS = 5_000;
/** For a peer that sends no more: how often to probe it, and how long it may take nothing. */
const HALF_CLOSED_PROBE_MS = 1_000;
const HALF_CLOSED_IDLE_MS = 40_000;
/** A draining connection, which has no place to lose, closes when its peer has answered no PING for this long. */
const DRAINING_SILENT_MS = 60_000;
/** The longest end of a connection without an admitted request. Its peer can read why; the agent reads nothing. */
const UNPROVEN_END_MS = 500;

/** A socket as accepted. A stream in memory has no address, and cannot be reset. */
type RawSocket = Duplex & Partial<Pick<Socket, "remoteAddress" | "resetAndDestroy">>;

const SETTLED = Promise.resolve();

/** Bounds of a connection's life. */
export interface ConnectionLimits {
  /** Time for the first request. */
  readonly firstRequestMs: number;
  /** Pause between two PINGs, which measure for how long the peer's program has been silent. Undefined: none are sent. */
  readonly pingIntervalMs?: number;
  readonly http2?: Partial<Http2Limits>;
  /** How it is read until `prove` is called. Undefined: every peer may make requests. */
  readonly probation?: PacedInputLimits;
  /** Without probation: how it is read. Undefined: as its bytes come. */
  readonly pace?: PacedInputLimits;
  /** A field of requests whose value is secret and not kept. */
  readonly secret?: SecretField;
}

/** Callbacks to a connection's owner. */
export interface ConnectionEvents {
  /** A request has begun. Its stream needs a consumer before this returns. */
  request(stream: Http2Stream, fields: RequestFields): void;
  /** The peer was refused, or broke the protocol or a limit. */
  failed(reason: string): void;
  /** Bytes were passed to the socket. */
  sent?(): void;
  /** The end has begun: it takes no new requests. */
  closing(): void;
  /** Its socket is closed. */
  gone(): void;
}

/**
 * An HTTP/2 connection and the life of its socket: serving; draining (discourages new requests, running ones go on);
 * closing (writes complete answers and nothing else); gone. From closing on there is a deadline, at which the socket is
 * destroyed whatever the peer does.
 */
export class Http2Connection {
  readonly #socket: Duplex;
  readonly #raw: RawSocket;
  readonly #events: ConnectionEvents;
  readonly #limits: ConnectionLimits;
  readonly #nowMs: () => number;
  readonly #machine: Http2Machine;
  /** The peer may make requests. */
  #isProven: boolean;
  /** Undefined: its bytes are read as they come. */
  #input: PacedInput | undefined;
  #state: "serving" | "draining" | "closing" | "gone" = "serving";
  #served = false;
  /** The machine is reading bytes; a flush waits until it has read all of them. */
  #receiving = false;
  #flushIsWanted = false;
  #flushIsDue = false;
  #writing = false;
  /** The peer has acknowledged that no more requests are accepted. */
  #endAnnounced = false;
  #halfClosed = false;
  #deadline: NodeJS.Timeout | undefined;
  #endBeganMs = 0;
  /** When the peer last took all that was written. */
  #takenMs = 0;
  #firstRequest: NodeJS.Timeout | undefined;
  #pings: NodeJS.Timeout | undefined;
  /** When the PING was sent that the peer has not answered. */
  #pingSentMs: number | undefined;

  /**
   * @param socket carries HTTP/2
   * @param raw the accepted socket below it; the same where there is no TLS
   * @param nowMs of a clock that is never stepped
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
        quieter: () => this.#flushSoon(),
        failed: (error) => this.#onFailure(error),
      },
    });
    const { probation, pace = probation } = limits;
    this.#isProven = probation === undefined;
    if (this.#isProven) this.#machine.prove();
    if (pace !== undefined) {
      this.#input = new PacedInput(socket, pace, {
        read: this.#receive,
        ended: this.#onInputEnd,
        exceeded: (problem) => this.#fail(ErrorCode.ENHANCE_YOUR_CALM, problem),
      });
    }
    // An error is followed by "close".
    socket.on("error", () => {});
    raw.once("close", this.#onClose);
  }

  /** Starts reading. */
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
      // Without an error code: gRPC clients would report ENHANCE_YOUR_CALM as RESOURCE_EXHAUSTED "Bandwidth exhausted".
      const reason = `no request within ${firstRequestMs} ms of the handshake`;
      this.#events.failed(reason);
      this.close(reason);
    });
    this.#firstRequest = setTimeout(late, firstRequestMs).unref();
    if (pingIntervalMs !== undefined) {
      const ping = this.#entry(() => this.#ping());
      this.#pings = setInterval(ping, pingIntervalMs).unref();
    }
    // Without TLS only after the client's preface (RFC 9113, 3.4): a dialer of vsock may drop what it reads together with
    // its VMM's answer to CONNECT.
    if (this.#socket !== this.#raw) this.#flushSoon();
  }

  /** For how long a PING has been unanswered, in milliseconds; 0: none is. A paused client does not answer. */
  get silentMs(): number {
    return this.#pingSentMs === undefined ? 0 : this.#nowMs() - this.#pingSentMs;
  }

  /** One of the peer's requests was admitted: from now on its bytes are read as they come. */
  prove(): void {
    if (this.#isProven || this.#state === "gone") return;
    this.#isProven = true;
    this.#machine.prove();
    const input = this.#input;
    this.#input = undefined;
    input?.pass();
  }

  /**
   * Announces that it accepts no new requests, lets running ones and those in flight finish, then closes. Closes at
   * once if no request was admitted: nothing needs finishing, and a peer that keeps sending must not delay the end.
   */
  drain(): void {
    if (this.#state !== "serving") return;
    if (!this.#isProven) {
      this.close();
      return;
    }
    this.#state = "draining";
    this.#events.closing();
    this.#machine.goAway(false);
    // Two PINGs: within the client, the answer to the first may overtake requests.
    this.#machine.ping(() => {
      this.#machine.ping(() => {
        this.#endAnnounced = true;
        this.#flushSoon();
      });
    });
  }

  /** Writes complete answers, drops the others, and closes. The peer gets the reason, if there is one, with GOAWAY. */
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
   * Ends a peer that may get only complete answers. Without any, destroys the socket at once, with what the kernel
   * still holds for it. Nothing more is then written under keys that a clone of this guest also has. Leaves a
   * connection that is already ending, because its last answer may be in flight.
   */
  cut(): void {
    this.#machine.drop("unanswered", ErrorCode.CONNECT_ERROR);
    const isIdle = this.#machine.streams.size === 0 && !this.#writing;
    if (isIdle && this.#state === "serving") this.#destroy(true);
    else this.close();
  }

  /** Destroys the socket at once, with what the kernel still holds for the peer. */
  abandon(): void {
    this.#destroy(true);
  }

  /** What the event loop calls: a throw is a bug, which ends this connection and no other. The process logs it. */
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
    if (this.#state === "closing") this.#takenMs = this.#nowMs();
    if (this.#halfClosed) return;
    this.#receiving = true;
    this.#machine.receive(chunk);
    this.#receiving = false;
    // Flush a complete answer now: no later output could share its write.
    if (this.#machine.hasAnswer) this.#flush();
    else if (this.#flushIsWanted) this.#flushSoon();
  });

  #onRequest(stream: Http2Stream, fields: RequestFields): void {
    if (!this.#served) {
      this.#served = true;
      clearTimeout(this.#firstRequest);
    }
    if (this.#deadline !== undefined && this.#state === "draining") {
      clearTimeout(this.#deadline);
      this.#deadline = undefined;
    }
    try {
      this.#events.request(stream, fields);
    } catch (error) {
      reportBug(error);
      stream.reset(ErrorCode.INTERNAL_ERROR);
    }
  }

  /** The peer sends no more. Without TLS the host of a bridge may still read, so complete requests are answered. */
  readonly #onInputEnd: () => void = this.#entry(() => {
    // Then the deadline decides.
    if (this.#state === "closing" || this.#state === "gone") return;
    if (this.#socket !== this.#raw || this.#machine.streams.size === 0) {
      this.close();
      return;
    }
    this.#stopTimers();
    // It cannot answer any more.
    this.#pingSentMs = undefined;
    this.#takenMs = this.#nowMs();
    this.#machine.peerIsLeaving = true;
    const probe = this.#entry(() => {
      this.#machine.drop("waiting_for_peer", ErrorCode.CONNECT_ERROR);
      // If the peer is gone, writing it fails.
      this.#machine.goAway(false);
      if (this.#writing && this.#nowMs() - this.#takenMs > HALF_CLOSED_IDLE_MS) this.close();
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

  /** Flushes at the end of this tick of the event loop, so that an answer is one write and one TLS record. */
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
      this.#onQuiet();
      return;
    }
    this.#writing = true;
    const written = this.#entry(() => {
      this.#writing = false;
      this.#takenMs = this.#nowMs();
      batch.release();
      this.#flush();
    });
    const { chunks, sizeBytes } = batch;
    if (this.#socket === this.#raw) writeEach(this.#socket, chunks, written);
    else writeJoined(this.#socket, chunks, sizeBytes, written);
    this.#events.sent?.();
  });

  /** Called when nothing is queued or being written. */
  #onQuiet(): void {
    if (this.#state === "serving" && !this.#machine.peerIsLeaving) return;
    if (this.#machine.streams.size > 0) return;
    if (this.#state === "serving" || (this.#state === "draining" && this.#endAnnounced)) this.close();
    else if (this.#state === "draining") this.#beginDeadline();
    else if (!this.#halfClosed) this.#halfClose();
  }

  #halfClose(): void {
    this.#halfClosed = true;
    this.#socket.end();
  }

  // --- the end

  #beginDeadline(): void {
    if (this.#deadline !== undefined) return;
    this.#endBeganMs = this.#nowMs();
    this.#takenMs = this.#endBeganMs;
    this.#deadline = setTimeout(this.#checkDeadline, this.#isProven ? IDLE_END_MS : UNPROVEN_END_MS);
  }

  readonly #checkDeadline: () => void = this.#entry(() => {
    const longestMs = this.#isProven ? LONGEST_END_MS : UNPROVEN_END_MS;
    const leftMs = Math.min(this.#takenMs + IDLE_END_MS, this.#endBeganMs + longestMs) - this.#nowMs();
    if (leftMs > 0) this.#deadline = setTimeout(this.#checkDeadline, Math.ceil(leftMs));
    else this.#destroy(this.#writing);
  });

  /** With `reset` the kernel drops what the peer has not taken; otherwise it still delivers that. */
  #destroy(reset: boolean): void {
    if (reset && this.#raw.remoteAddress !== undefined) this.#raw.resetAndDestroy?.();
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
    clearTimeout(this.#firstRequest);
    clearInterval(this.#pings);
  }
}
