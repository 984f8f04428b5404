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
} from "@bufbuild/protobuf";
import { anyIs } from "@bufbuild/protobuf/wkt";
import type { ServiceError } from "@grpc/grpc-js";
import type { CallOptions, Channel } from "../../../../src/node/client/channel.ts";
import { received } from "../../../../src/node/client/received.ts";
import {
  type ClientCompatRequest,
  type ClientCompatRequest_Cancel,
  type ClientResponseResult,
  ClientResponseResultSchema,
} from "./gen/connectrpc/conformance/v1/client_compat_pb.ts";
import { StreamType } from "./gen/connectrpc/conformance/v1/config_pb.ts";
import {
  type ConformancePayload,
  ConformancePayloadSchema,
  ConformanceService,
} from "./gen/connectrpc/conformance/v1/service_pb.ts";
import { errorOf, headersOf, type Seen } from "./seen.ts";

/** One call of the suite's through the library's channel, cancelled when the suite wants it. */
export class Call {
  readonly #channel: Channel;
  readonly #request: ClientCompatRequest;
  readonly #cancelled = new AbortController();
  readonly #timing: ClientCompatRequest_Cancel["cancelTiming"] | undefined;
  readonly #payloads: ConformancePayload[] = [];
  #sent = 0;

  constructor(channel: Channel, request: ClientCompatRequest) {
    this.#channel = channel;
    this.#request = request;
    const { cancel } = request;
    this.#timing =
      cancel?.cancelTiming.case === undefined ? cancel && { case: "afterCloseSendMs", value: 0 } : cancel.cancelTiming;
  }

  /** Makes it. Rejects where it cannot be made at all; that it fails is a result. */
  async result(seen: Seen): Promise<ClientResponseResult> {
    const failure = await this.#make().then(
      () => ({}),
      (error: unknown) => ({ error: errorOf(error, seen.trailers) }),
    );
    return create(ClientResponseResultSchema, {
      ...failure,
      payloads: this.#payloads,
      responseHeaders: headersOf(seen.headers),
      responseTrailers: headersOf(seen.trailers),
      numUnsentRequests: this.#request.requestMessages.length - this.#sent,
    });
  }

  async #make(): Promise<void> {
    const method = Object.values(ConformanceService.method).find(({ name }) => name === this.#request.method);
    switch (method?.methodKind) {
      case "unary":
        return this.#unary(method);
      case "server_streaming":
        return this.#serverStream(method);
      case "client_streaming":
        return this.#clientStream(method);
      case "bidi_streaming":
        return this.#bidiStream(method);
      case undefined:
        throw new Error(`the suite's service has no method ${this.#request.method}`);
    }
  }

  async #unary(method: DescMethodUnary): Promise<void> {
    const answer = this.#channel.unary(method, this.#onlyMessage(method.input), this.#options());
    this.#closedSend();
    this.#received(await answer);
  }

  async #serverStream(method: DescMethodServerStreaming): Promise<void> {
    const answers = received(this.#channel, method, this.#onlyMessage(method.input), this.#options(), {
      take: (message) => [message],
    });
    const first = answers.next();
    this.#closedSend();
    for (let next = await first; next.done !== true; next = await answers.next()) this.#received(next.value);
  }

  async #clientStream(method: DescMethodClientStreaming): Promise<void> {
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

  async #bidiStream(method: DescMethodBiDiStreaming): Promise<void> {
    const call = this.#channel.bidiStream(method, this.#options());
    const answers = (call as AsyncIterable<Message>)[Symbol.asyncIterator]();
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
        if (this.#request.streamType === StreamType.FULL_DUPLEX_BIDI_STREAM && !(await take())) break;
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
    return { signal: this.#cancelled.signal, ...(timeoutMs !== undefined && { timeoutMs: timeoutMs }) };
  }

  #messages(schema: DescMessage): Message[] {
    return this.#request.requestMessages.map((message) => {
      if (!anyIs(message, schema)) throw new Error(`${message.typeUrl} is no ${schema.typeName}`);
      return fromBinary(schema, message.value);
    });
  }

  #onlyMessage(schema: DescMessage): Message {
    const [message, ...more] = this.#messages(schema);
    if (message === undefined || more.length > 0) throw new Error("the suite gives not exactly one message");
    this.#sent = 1;
    return message;
  }

  #received(message: Message & { payload?: ConformancePayload }): void {
    this.#payloads.push(message.payload ?? create(ConformancePayloadSchema));
    const { case: name, value } = this.#timing ?? {};
    if (name === "afterNumResponses" && this.#payloads.length === value) this.#cancelled.abort();
  }

  /** The suite counts from here. */
  #closedSend(): void {
    if (this.#timing?.case === "afterCloseSendMs") setTimeout(() => this.#cancelled.abort(), this.#timing.value);
  }
}

function noted(): void {}
