import { setTimeout as delay } from "node:timers/promises";
import { create, type DescMessage, type Message, type MessageShape } from "@bufbuild/protobuf";
import { type GenMessage } from "@bufbuild/protobuf/codegenv2";
import { type Any, anyPack } from "@bufbuild/protobuf/wkt";
import { parseTimeout } from "@connectrpc/connect/protocol-grpc";
import { AgentError } from "../../../src/agent/domain/index.ts";
import { type Call, decodeMessage, messageFrame } from "../../../src/agent/rpc/index.ts";
import type { Answer, AnsweringRouter } from "./answer.ts";
import type { Payload, Schema, StreamDefinition, UnaryDefinition, WantedError } from "./schema.ts";

/** Serves the suite's service, as its schema's comments say, over the agent's own gRPC. */
export class Service {
  readonly #router: AnsweringRouter;
  readonly #schema: Schema;

  constructor(router: AnsweringRouter, schema: Schema) {
    this.#router = router;
    this.#schema = schema;
    const { unary, idempotentUnary, serverStream, clientStream, bidiStream } = schema.service.method;
    router.unary(unary, async (request, call) =>
      this.#response(unary.output, await this.#once(call, request.responseDefinition, [anyPack(unary.input, request)])),
    );
    router.unary(idempotentUnary, async (request, call) => {
      const requests = [anyPack(idempotentUnary.input, request)];
      return this.#response(idempotentUnary.output, await this.#once(call, request.responseDefinition, requests));
    });
    router.clientStream(clientStream, async (call) => {
      let definition: UnaryDefinition | undefined;
      const requests: Any[] = [];
      for await (const bytes of call.messages()) {
        const request = decodeMessage(clientStream.input, bytes);
        if (requests.length === 0) definition = request.responseDefinition;
        requests.push(anyPack(clientStream.input, request));
      }
      return this.#response(clientStream.output, await this.#once(call, definition, requests));
    });
    router.serverStream(serverStream, async (request, call) => {
      const definition = request.responseDefinition;
      if (definition === undefined) return;
      const responses = new Responses(call, definition, serverStream.output, this);
      responses.begin();
      await responses.sendRest([anyPack(serverStream.input, request)]);
    });
    router.bidiStream(bidiStream, (call) => this.#talk(call));
  }

  answerOf(call: Call): Answer {
    return this.#router.answerOf(call.metadata);
  }

  /** A payload that describes the call so far. */
  payload(data: Uint8Array, call: Call | undefined, requests: readonly Any[]): Payload {
    const requestInfo = create(this.#schema.requestInfo, { ...(call && seen(call)), requests: [...requests] });
    return create(this.#schema.payload, { data, requestInfo });
  }

  bare(data: Uint8Array): Payload {
    return create(this.#schema.payload, { data });
  }

  /** The error that a call ends with if nothing else was sent: its details describe the call. */
  failure(call: Call, { code, message, details }: WantedError, requests: readonly Any[] | undefined): AgentError {
    const info = requests && create(this.#schema.requestInfo, { ...seen(call), requests: [...requests] });
    this.answerOf(call).replaceStatus(code, info ? [...details, anyPack(this.#schema.requestInfo, info)] : details);
    return new AgentError("INTERNAL", "INTERNAL", message ?? "");
  }

  async #once(call: Call, definition: UnaryDefinition | undefined, requests: readonly Any[]): Promise<Payload> {
    if (definition === undefined) return this.payload(new Uint8Array(), call, requests);
    const { responseHeaders, responseTrailers, responseDelayMs, response } = definition;
    this.answerOf(call).add(responseHeaders, responseTrailers);
    await pause(call, responseDelayMs);
    if (response.case === "error") throw this.failure(call, response.value, requests);
    return this.payload(response.value ?? new Uint8Array(), call, requests);
  }

  #response<O extends Message & { payload?: Payload }>(output: GenMessage<O>, payload: Payload): O {
    const response = create(output);
    response.payload = payload;
    return response;
  }

  async #talk(call: Call): Promise<void> {
    const { input, output } = this.#schema.service.method.bidiStream;
    let responses: Responses | undefined;
    let isFullDuplex = false;
    let requests: Any[] = [];
    for await (const bytes of call.messages()) {
      const request = decodeMessage(input, bytes);
      requests.push(anyPack(input, request));
      if (responses === undefined) {
        if (request.responseDefinition !== undefined) {
          responses = new Responses(call, request.responseDefinition, output, this);
          if (request.fullDuplex) responses.begin();
        }
        isFullDuplex = request.fullDuplex;
      }
      if (!isFullDuplex) continue;
      if (responses === undefined || responses.isOver) break;
      await responses.send(requests);
      requests = [];
    }
    await responses?.sendRest(requests);
  }
}

/** The responses of one call. */
class Responses {
  readonly #call: Call;
  readonly #definition: StreamDefinition;
  readonly #output: DescMessage;
  readonly #service: Service;
  #sent = 0;

  constructor(call: Call, definition: StreamDefinition, output: DescMessage, service: Service) {
    this.#call = call;
    this.#definition = definition;
    this.#output = output;
    this.#service = service;
    service.answerOf(call).add(definition.responseHeaders, definition.responseTrailers);
  }

  get isOver(): boolean {
    return this.#sent >= this.#definition.responseData.length;
  }

  begin(): void {
    this.#service.answerOf(this.#call).begin();
  }

  /** Sends the next response: the first describes the whole call, a later one only the requests since then. */
  async send(requests: readonly Any[]): Promise<void> {
    const data = this.#definition.responseData[this.#sent] ?? new Uint8Array();
    const isFirst = this.#sent++ === 0;
    const payload =
      isFirst || requests.length > 0
        ? this.#service.payload(data, isFirst ? this.#call : undefined, requests)
        : this.#service.bare(data);
    await pause(this.#call, this.#definition.responseDelayMs);
    const response = create(this.#output) as MessageShape<DescMessage> & { payload?: Payload };
    response.payload = payload;
    this.#call.send(messageFrame(this.#output, response));
    await this.#call.drained();
  }

  /** Sends the responses that are left, and fails if the call has to. */
  async sendRest(requests: readonly Any[]): Promise<void> {
    let unsent = requests;
    while (!this.isOver) {
      await this.send(unsent);
      unsent = [];
    }
    const { error } = this.#definition;
    if (error !== undefined) throw this.#service.failure(this.#call, error, this.#sent === 0 ? requests : undefined);
  }
}

/** Waits as long as the suite wants, or throws why the call was aborted. */
async function pause({ signal }: Call, durationMs: number): Promise<void> {
  await delay(durationMs, undefined, { signal }).catch(() => signal.throwIfAborted());
}

/** What the server knows of a call before its messages. */
function seen({ metadata }: Call): {
  requestHeaders: { name: string; value: string[] }[];
  timeoutMs?: bigint;
} {
  const fields = Object.entries(metadata).filter(([name]) => !name.startsWith(":"));
  const { timeoutMs } = parseTimeout(metadata["grpc-timeout"] ?? null, Number.POSITIVE_INFINITY);
  return {
    requestHeaders: fields.map(([name, value = ""]) => ({ name, value: [value] })),
    ...(timeoutMs !== undefined && { timeoutMs: BigInt(Math.floor(timeoutMs)) }),
  };
}
