import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import {
  create,
  type DescMessage,
  type DescMethodBiDiStreaming,
  type DescMethodClientStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";
import { anyIs } from "@bufbuild/protobuf/wkt";
import type { ServiceError } from "@grpc/grpc-js";
import type { CallOptions, Channel } from "../../../src/node/client/channel.ts";
import { received } from "../../../src/node/client/received.ts";
import type { CancelTiming, ClientRequest, ClientResult, Payload, Schema } from "./schema.ts";
import { errorOf, headersOf, type Seen } from "./seen.ts";

/** STREAM_TYPE_FULL_DUPLEX_BIDI_STREAM */
const FULL_DUPLEX = 5;

/** One call of the suite's through the library's channel, cancelled when the suite wants it. */
export class Call {
  readonly #channel: Channel;
  readonly #schema: Schema;
  readonly #request: ClientRequest;
  readonly #cancelled = new AbortController();
  readonly #timing: CancelTiming | undefined;
  readonly #payloads: Payload[] = [];
  #sent = 0;

  constructor(channel: Channel, schema: Schema, request: ClientRequest) {
    this.#channel = channel;
    this.#schema = schema;
    this.#request = request;
    const { cancel } = request;
    this.#timing =
      cancel?.cancelTiming.case === undefined ? cancel && { case: "afterCloseSendMs", value: 0 } : cancel.cancelTiming;
  }

  /** Makes it. Rejects where it cannot be made at all; that it fails is a result. */
  async result(seen: Seen): Promise<ClientResult> {
    const result = create(this.#schema.clientResult);
    try {
      await this.#make();
    } catch (failure) {
      result.error = errorOf(this.#schema, failure, seen.trailers);
    }
    result.payloads = this.#payloads;
    result.responseHeaders = headersOf(this.#schema, seen.headers);
    result.responseTrailers = headersOf(this.#schema, seen.trailers);
    result.numUnsentRequests = this.#request.requestMessages.length - this.#sent;
    return result;
  }

  #make(): Promise<void> {
    const { unary, idempotentUnary, unimplemented, serverStream, clientStream, bidiStream } =
      this.#schema.service.method;
    switch (this.#request.method) {
      case unary.name:
        return this.#unary(unary);
      case idempotentUnary.name:
        return this.#unary(idempotentUnary);
      case unimplemented.name:
        return this.#unary(unimplemented);
      case serverStream.name:
        return this.#serverStream(serverStream);
      case clientStream.name:
        return this.#clientStream(clientStream);
      case bidiStream.name:
        return this.#bidiStream(bidiStream);
      case undefined:
      default:
        throw new Error(`the suite's service has no method ${this.#request.method}`);
    }
  }

  async #unary<I extends DescMessage, O extends DescMessage>(method: DescMethodUnary<I, O>): Promise<void> {
    const answer = this.#channel.unary(method, this.#onlyMessage(method.input), this.#options());
    this.#closedSend();
    this.#received(await answer);
  }

  async #serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
  ): Promise<void> {
    const answers = received(this.#channel, method, this.#onlyMessage(method.input), this.#options(), {
      take: (message) => [message],
    });
    const first = answers.next();
    this.#closedSend();
    for (let next = await first; next.done !== true; next = await answers.next()) this.#received(next.value);
  }

  async #clientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodClientStreaming<I, O>,
  ): Promise<void> {
    const { requests, response } = this.#channel.clientStream(method, this.#options());
    // Whether it fails or not: the call is over, and nothing more is taken.
    const isOver = response.then(noted, noted);
    for (const message of this.#messages(method.input)) {
      await delay(this.#request.requestDelayMs);
      if (!requests.writable) break;
      this.#sent++;
      if (!requests.write(message)) await Promise.race([once(requests, "drain"), isOver]);
    }
    if (this.#timing?.case === "beforeCloseSend") this.#cancelled.abort();
    else requests.end();
    this.#closedSend();
    this.#received(await response);
  }

  async #bidiStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
  ): Promise<void> {
    const call = this.#channel.bidiStream(method, this.#options());
    const answers = (call as AsyncIterable<MessageShape<O>>)[Symbol.asyncIterator]();
    const take = async (): Promise<boolean> => {
      const next = await answers.next();
      if (next.done !== true) this.#received(next.value);
      return next.done !== true;
    };
    try {
      for (const message of this.#messages(method.input)) {
        await delay(this.#request.requestDelayMs);
        if (!call.writable) break;
        this.#sent++;
        call.write(message);
        if (this.#request.streamType === FULL_DUPLEX && !(await take())) break;
      }
      if (this.#timing?.case === "beforeCloseSend") this.#cancelled.abort();
      else call.end();
      this.#closedSend();
      while (await take());
    } catch (error) {
      throw await this.#channel.failure(error as ServiceError, method, this.#cancelled.signal);
    }
  }

  #options(): CallOptions {
    const { timeoutMs } = this.#request;
    return { signal: this.#cancelled.signal, ...(timeoutMs !== undefined && { deadlineMs: timeoutMs }) };
  }

  #messages<Desc extends DescMessage>(schema: Desc): MessageShape<Desc>[] {
    return this.#request.requestMessages.map((message) => {
      if (!anyIs(message, schema)) throw new Error(`${message.typeUrl} is no ${schema.typeName}`);
      return fromBinary(schema, message.value);
    });
  }

  #onlyMessage<Desc extends DescMessage>(schema: Desc): MessageShape<Desc> {
    const [message, ...more] = this.#messages(schema);
    if (message === undefined || more.length > 0) throw new Error("the suite gives not exactly one message");
    this.#sent = 1;
    return message;
  }

  #received(message: Message & { payload?: Payload }): void {
    this.#payloads.push(message.payload ?? create(this.#schema.payload));
    const { case: name, value } = this.#timing ?? {};
    if (name === "afterNumResponses" && this.#payloads.length === value) this.#cancelled.abort();
  }

  /** The suite counts from here. */
  #closedSend(): void {
    if (this.#timing?.case === "afterCloseSendMs") setTimeout(() => this.#cancelled.abort(), this.#timing.value);
  }
}

function noted(): void {}
