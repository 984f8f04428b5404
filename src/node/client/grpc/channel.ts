import type { EventEmitter } from "node:events";
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodBiDiStreaming,
  type DescMethodClientStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import {
  type Client,
  type ClientDuplexStream,
  type ClientReadableStream,
  type ClientWritableStream,
  type CallOptions as GrpcCallOptions,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { fromArguments, limitOf } from "../arguments.ts";
import {
  abortedError,
  explanationLimitMs,
  failure,
  type GuestError,
  guestError,
  isLost,
  SILENCE_LIMIT_MS,
  uncompressed,
} from "../errors/errors.ts";
import { withoutNoise } from "./grpc-texts.ts";
import type { Link } from "./link/link.ts";
import type { Liveness } from "./link/liveness.ts";
import { retried } from "./retry.ts";
import { deferred } from "../deferred.ts";

/** Options of every method that calls the agent. */
export interface CallOptions {
  /**
   * When this signal is aborted, the call is cancelled, and rejects with a GuestError of the name "AbortError" and the
   * code ABORT_ERR. A command then ends as after `GuestProcess.cancel()`, and may still run for 5 s; a kept command
   * continues.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Time limit of the whole call, in milliseconds from now. At the limit, the call fails with DEADLINE_EXCEEDED. For a
   * command, the limit covers only the start; for a tunnel, only the opening. Default: Infinity, which means no limit.
   */
  readonly requestTimeoutMs?: number | undefined;
  /**
   * Wait until the agent can be reached, instead of failing with UNAVAILABLE. Set `requestTimeoutMs` as well, because
   * the call may otherwise wait indefinitely.
   */
  readonly waitForReady?: boolean | undefined;
}

/**
 * Pauses before the second and third attempt of a call that may be repeated. They are long enough for an agent that is
 * just replacing its listener.
 */
const QUESTION_PAUSES_MS = [50, 250];

const VERSION_HEADER = "svc-agent-version";

/** Makes gRPC calls. Each method is given by its generated descriptor, and each call carries the instance token. */
export class Channel {
  readonly #client: Client;
  readonly #link: Link;
  readonly #liveness: Liveness;
  readonly #token: string;
  #agentVersion: string | undefined;
  readonly #closed = new AbortController();

  constructor(client: Client, link: Link, liveness: Liveness, token: string) {
    this.#client = client;
    this.#link = link;
    this.#liveness = liveness;
    this.#token = token;
  }

  /** The agent's version in its last answer; undefined before the first answer. */
  get agentVersion(): string | undefined {
    return this.#agentVersion;
  }

  /**
   * The address to which the client last connected, if the client has several addresses or a vsock address. Undefined
   * before the first connection, for a bridge, and for any other single address, because grpc-js itself dials such an
   * address.
   */
  get addressInUse(): string | undefined {
    return this.#link.inUse?.();
  }

  /** Whether there has ever been a connection. */
  get wasConnected(): boolean {
    return this.#liveness.wasConnected;
  }

  /** The address or bridge program of the client, as the events of its connection report it. */
  get target(): string {
    return this.#liveness.target;
  }

  /** Number of calls in progress. */
  get calls(): number {
    return this.#liveness.calls;
  }

  /** Aborted by `close`. Ends the calls that would never end by themselves, such as watches. */
  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** Whether `close` was called. If so, new calls fail. */
  get isClosed(): boolean {
    return this.closed.aborted;
  }

  /** Calls a unary method that changes nothing, and repeats the call when the connection fails. Rejects with GuestError. */
  async question<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const { signal, requestTimeoutMs = Number.POSITIVE_INFINITY } = options;
    const atMs = deadlineOf(options);
    const ask = (): Promise<MessageShape<O>> => this.unary(method, request, options, atMs);
    return retried(ask(), ask, {
      pausesMs: QUESTION_PAUSES_MS,
      untilMs: performance.now() + requestTimeoutMs,
      signal,
      target: this.target,
      // Do not retry after a connect timeout, because the retry would take as long again.
      isTransient: (error) => isLost(error) && error.code !== "CONNECT_TIMED_OUT",
    });
  }

  /**
   * Calls a unary method once. Rejects with GuestError.
   *
   * @param atMs deadline, as a value of Date.now(); default: the time now plus `options.requestTimeoutMs`
   */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
    atMs: number | undefined = deadlineOf(options),
  ): Promise<MessageShape<O>> {
    const bytes = encoded(method.input, request);
    const { promise, answer } = this.#answered(method, options.signal);
    const call = this.#client.makeUnaryRequest(
      pathOf(method),
      asIs,
      deserializer(method.output),
      bytes,
      this.#metadata(options),
      grpcOptions(atMs),
      answer,
    );
    this.#observed(call, options.signal);
    return promise;
  }

  /**
   * Calls a server-streaming method. The stream fails with ServiceError. Throws GuestError if the channel is closed or
   * the signal is aborted.
   */
  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): ClientReadableStream<MessageShape<O>> {
    const call = this.#client.makeServerStreamRequest(
      pathOf(method),
      asIs,
      deserializer(method.output),
      encoded(method.input, request),
      this.#metadata(options),
      grpcOptions(deadlineOf(options)),
    );
    return this.#observed(call, options.signal);
  }

  /**
   * Calls a client-streaming method. `response` rejects with GuestError. Throws GuestError if the channel is closed or
   * the signal is aborted.
   */
  clientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodClientStreaming<I, O>,
    options: CallOptions = {},
  ): { readonly requests: ClientWritableStream<MessageShape<I>>; readonly response: Promise<MessageShape<O>> } {
    const { promise, answer } = this.#answered(method, options.signal);
    const requests = this.#client.makeClientStreamRequest(
      pathOf(method),
      serializer(method.input),
      deserializer(method.output),
      this.#metadata(options),
      grpcOptions(deadlineOf(options)),
      answer,
    );
    return { requests: this.#observed(requests, options.signal), response: promise };
  }

  /**
   * Calls a bidirectional streaming method. The stream accepts messages, or the bytes of messages, and fails with
   * ServiceError. Throws GuestError if the channel is closed or the signal is aborted.
   */
  bidiStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    options: CallOptions = {},
  ): ClientDuplexStream<MessageShape<I> | Buffer, MessageShape<O>> {
    const call = this.#client.makeBidiStreamRequest(
      pathOf(method),
      orBytes(method.input),
      deserializer(method.output),
      this.#metadata(options),
      grpcOptions(deadlineOf(options)),
    );
    return this.#observed(call, options.signal);
  }

  /**
   * Converts the ServiceError of a call to a GuestError. If grpc-js does not say why there is no connection, the link
   * makes another attempt to find out.
   */
  async failure(error: ServiceError, method: DescMethod, signal: AbortSignal | undefined): Promise<GuestError> {
    const known = uncompressed(error);
    if (known !== undefined) return known;
    this.#noteVersion(error.metadata);
    const isTimedOut = error.code === status.UNAVAILABLE && this.#liveness.isGivenUp;
    const limitMs = signal?.aborted === true ? undefined : isTimedOut ? SILENCE_LIMIT_MS : explanationLimitMs(error);
    const explained = limitMs === undefined ? undefined : await this.#link.explain?.(limitMs);
    return guestError(error, {
      method: method.name,
      service: method.parent.typeName,
      signal,
      agentVersion: this.#agentVersion,
      linkFailure: this.#link.failure?.() ?? explained ?? this.#liveness.lossOf(withoutNoise(error.details)),
      connectTimeoutMs: isTimedOut ? this.#liveness.connectTimeoutMs : undefined,
    });
  }

  /** Calls `tell` with the GuestError that `failure` makes of the error. For callers that cannot await a promise. */
  async explained(
    error: ServiceError,
    method: DescMethod,
    signal: AbortSignal | undefined,
    tell: (failure: GuestError) => void,
  ): Promise<void> {
    tell(await this.failure(error, method, signal));
  }

  /** Closes the connection once the calls in progress have ended. Later calls fail. */
  close(): void {
    if (this.isClosed) return;
    this.#closed.abort();
    // A call that is waiting for a connection still needs the link. In this case, do not release the link.
    const needsConnection = this.calls > 0 && !this.#liveness.isConnected;
    this.#client.close();
    this.#link.close?.();
    if (!needsConnection) this.#link.release?.();
  }

  /** Creates a promise and the grpc-js callback that settles it. */
  #answered<O extends DescMessage>(
    method: DescMethod & { readonly output: O },
    signal: AbortSignal | undefined,
  ): { promise: Promise<MessageShape<O>>; answer: (error: ServiceError | null, value?: MessageShape<O>) => void } {
    const { promise, resolve, reject } = deferred<MessageShape<O>>();
    return {
      promise,
      answer: (error, value) => {
        if (error !== null) void this.explained(error, method, signal, reject);
        else if (value !== undefined) resolve(value);
      },
    };
  }

  /**
   * Counts a call as in progress until its status arrives, which grpc-js reports at the end of every call. Records the
   * agent's version from the headers, and cancels the call when the signal is aborted.
   */
  #observed<Call extends EventEmitter & Cancellable>(call: Call, signal: AbortSignal | undefined): Call {
    this.#liveness.begin();
    call.once("status", () => this.#liveness.end());
    call.on("metadata", (headers: Metadata) => this.#noteVersion(headers));
    if (signal !== undefined) {
      const cancel = (): void => cancelCall(call);
      signal.addEventListener("abort", cancel, { once: true });
      call.once("status", () => signal.removeEventListener("abort", cancel));
    }
    return call;
  }

  #noteVersion(headers: Metadata | undefined): void {
    const [version] = headers?.get(VERSION_HEADER) ?? [];
    if (typeof version === "string") this.#agentVersion = version;
  }

  /** Creates the metadata of a call. Throws GuestError if the channel is closed or the signal is aborted. */
  #metadata(options: CallOptions): Metadata {
    if (options.signal?.aborted === true) throw abortedError(options.signal);
    if (this.isClosed) throw clientClosed();
    const metadata = new Metadata({ waitForReady: options.waitForReady ?? false });
    metadata.set("svc-instance-token", this.#token);
    return metadata;
  }
}

/** Creates the error of a call on a closed client. */
export function clientClosed(): GuestError {
  return failure("CANCELLED", "CLIENT_CLOSED", "the client has been closed");
}

interface Cancellable {
  cancel(): void;
}

/**
 * Cancels a call in the next tick of the event loop. If a call is cancelled in the tick in which it was started,
 * grpc-js reports the cancellation, but still sends the call. (ResolvingCall of 1.14 checks for a cancellation only
 * before it filters the metadata.)
 */
export function cancelCall(call: Cancellable): void {
  setImmediate(() => call.cancel());
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** Encodes a message. Throws GuestError (INVALID_ARGUMENT), which names the field that cannot be sent. */
export function encoded<Desc extends DescMessage>(schema: Desc, message: MessageInitShape<Desc>): Buffer {
  return fromArguments("the request cannot be sent", () => serializer(schema)(create(schema, message)));
}

function asIs(bytes: Buffer): Buffer {
  return bytes;
}

function serializer<Desc extends DescMessage>(schema: Desc): (message: MessageShape<Desc>) => Buffer {
  return (message) => {
    const bytes = toBinary(schema, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
}

function orBytes<Desc extends DescMessage>(schema: Desc): (message: MessageShape<Desc> | Buffer) => Buffer {
  const serialize = serializer(schema);
  return (message) => (Buffer.isBuffer(message) ? message : serialize(message));
}

/**
 * Returns a function that decodes a message. The `bytes` fields of its result are views of the received message, so
 * nothing is copied.
 */
function deserializer<Desc extends DescMessage>(schema: Desc): (bytes: Buffer) => MessageShape<Desc> {
  return (bytes) => fromBinary(schema, bytes);
}

function deadlineOf({ requestTimeoutMs }: CallOptions): number | undefined {
  const limitMs = limitOf(requestTimeoutMs, "requestTimeoutMs");
  return limitMs === undefined ? undefined : Date.now() + limitMs;
}

function grpcOptions(deadlineMs: number | undefined): GrpcCallOptions {
  return deadlineMs === undefined ? {} : { deadline: deadlineMs };
}
