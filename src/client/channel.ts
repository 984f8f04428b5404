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
  type CallOptions as GrpcCallOptions,
  type Client,
  type ClientDuplexStream,
  type ClientReadableStream,
  type ClientWritableStream,
  Metadata,
  type ServiceError,
} from "@grpc/grpc-js";
import { abortedError, GuestError, guestError } from "./errors.ts";
import { settlement } from "./settlement.ts";

/** Options of every call. */
export interface CallOptions {
  /** Aborting cancels the call. */
  readonly signal?: AbortSignal | undefined;
  /** Deadline of the whole call, in milliseconds from now. None by default. */
  readonly timeoutMs?: number | undefined;
  /** Wait until the agent can be reached instead of failing with UNAVAILABLE. Give it a deadline. */
  readonly waitForReady?: boolean | undefined;
}

/** gRPC calls by generated method descriptors, each with the instance token. */
export class Channel {
  readonly #client: Client;
  readonly #token: string;
  #closed = false;

  constructor(client: Client, token: string) {
    this.#client = client;
    this.#token = token;
  }

  /** Calls a unary method. Rejects with GuestError. */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const { promise, answer } = answered<O>(options.signal);
    const call = this.#client.makeUnaryRequest(
      pathOf(method),
      serializer(method.input),
      deserializer(method.output),
      create(method.input, request),
      this.#metadata(options),
      grpcOptions(options),
      answer,
    );
    return cancelledBy(options.signal, call, promise);
  }

  /** Calls a method that answers with a stream. The stream fails with grpc-js's ServiceError; throws GuestError once closed. */
  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): ClientReadableStream<MessageShape<O>> {
    return this.#client.makeServerStreamRequest(
      pathOf(method),
      serializer(method.input),
      deserializer(method.output),
      create(method.input, request),
      this.#metadata(options),
      grpcOptions(options),
    );
  }

  /** Calls a method that takes a stream. The answer rejects with GuestError; throws it once closed. */
  clientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodClientStreaming<I, O>,
    options: CallOptions = {},
  ): { readonly requests: ClientWritableStream<MessageShape<I>>; readonly response: Promise<MessageShape<O>> } {
    const { promise, answer } = answered<O>(options.signal);
    const requests = this.#client.makeClientStreamRequest(
      pathOf(method),
      serializer(method.input),
      deserializer(method.output),
      this.#metadata(options),
      grpcOptions(options),
      answer,
    );
    return { requests, response: cancelledBy(options.signal, requests, promise) };
  }

  /** Calls a method with streams both ways. The stream fails with grpc-js's ServiceError; throws GuestError once closed. */
  bidiStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    options: CallOptions = {},
  ): ClientDuplexStream<MessageShape<I>, MessageShape<O>> {
    return this.#client.makeBidiStreamRequest(
      pathOf(method),
      serializer(method.input),
      deserializer(method.output),
      this.#metadata(options),
      grpcOptions(options),
    );
  }

  /** Closes the connection once the calls in progress have ended. Later calls fail. */
  close(): void {
    this.#closed = true;
    this.#client.close();
  }

  #metadata(options: CallOptions): Metadata {
    if (this.#closed) throw new GuestError({ status: "CANCELLED", message: "the client has been closed" });
    const metadata = new Metadata({ waitForReady: options.waitForReady ?? false });
    metadata.set("svc-instance-token", this.#token);
    return metadata;
  }
}

interface Cancellable {
  cancel(): void;
}

/** A promise and the callback that settles it. */
function answered<O extends DescMessage>(
  signal: AbortSignal | undefined,
): { promise: Promise<MessageShape<O>>; answer: (error: ServiceError | null, value?: MessageShape<O>) => void } {
  const { promise, resolve, reject } = settlement<MessageShape<O>>();
  return {
    promise,
    answer: (error, value) => {
      if (error !== null) reject(guestError(error, signal));
      else if (value !== undefined) resolve(value);
    },
  };
}

/** Ties a call to its signal until it is settled. */
export function cancelledBy<Value>(
  signal: AbortSignal | undefined,
  call: Cancellable,
  settled: Promise<Value>,
): Promise<Value> {
  if (signal === undefined) return settled;
  const cancel = (): void => call.cancel();
  if (signal.aborted) {
    cancel();
    settled.catch(() => undefined);
    return Promise.reject(abortedError(signal));
  }
  signal.addEventListener("abort", cancel, { once: true });
  return settled.finally(() => signal.removeEventListener("abort", cancel));
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function serializer<Desc extends DescMessage>(schema: Desc): (message: MessageShape<Desc>) => Buffer {
  return (message) => {
    const bytes = toBinary(schema, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
}

/** `bytes` fields of the result are views of the received message: nothing is copied. */
function deserializer<Desc extends DescMessage>(schema: Desc): (bytes: Buffer) => MessageShape<Desc> {
  return (bytes) => fromBinary(schema, bytes);
}

function grpcOptions(options: CallOptions): GrpcCallOptions {
  return options.timeoutMs === undefined ? {} : { deadline: Date.now() + options.timeoutMs };
}
