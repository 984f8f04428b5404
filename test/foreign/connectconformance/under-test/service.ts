import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { type Any, anyPack } from "@bufbuild/protobuf/wkt";
import { parseTimeout } from "@connectrpc/connect/protocol-grpc";
import { AgentError } from "../../../../src/agent/domain/index.ts";
import { type Call, decodeMessage, messageFrame } from "../../../../src/agent/rpc/index.ts";
import type { Answer, AnsweringRouter } from "./answer.ts";
import {
  BidiStreamResponseSchema,
  ClientStreamResponseSchema,
  type ConformancePayload,
  type ConformancePayload_RequestInfo as RequestInfo,
  ConformancePayload_RequestInfoSchema as RequestInfoSchema,
  ConformancePayloadSchema,
  ConformanceService,
  type Error as WantedError,
  IdempotentUnaryResponseSchema,
  type StreamResponseDefinition,
  type UnaryResponseDefinition,
  UnaryResponseSchema,
} from "./gen/connectrpc/conformance/v1/service_pb.ts";

/** Serves the suite's service, as its schema's comments say, over the agent's own gRPC. */
export function serve(router: AnsweringRouter): void {
  const { unary, idempotentUnary, serverStream, clientStream, bidiStream } = ConformanceService.method;
  const answerOf = ({ metadata }: Call): Answer => router.answerOf(metadata);
  router.unary(unary, async (request, call) => {
    const requests = [anyPack(unary.input, request)];
    return create(UnaryResponseSchema, await answered(call, answerOf(call), request.responseDefinition, requests));
  });
  router.unary(idempotentUnary, async (request, call) => {
    const requests = [anyPack(idempotentUnary.input, request)];
    const response = await answered(call, answerOf(call), request.responseDefinition, requests);
    return create(IdempotentUnaryResponseSchema, response);
  });
  router.clientStream(clientStream, async (call) => {
    let definition: UnaryResponseDefinition | undefined;
    const requests: Any[] = [];
    const messages = call.messages();
    for (let next = await messages.next(); next !== undefined; next = await messages.next()) {
      const request = decodeMessage(clientStream.input, next.bytes);
      if (requests.length === 0) definition = request.responseDefinition;
      requests.push(anyPack(clientStream.input, request));
    }
    return create(ClientStreamResponseSchema, await answered(call, answerOf(call), definition, requests));
  });
  router.serverStream(serverStream, async (request, call) => {
    const definition = request.responseDefinition;
    if (definition === undefined) return;
    const responses = new Responses(call, answerOf(call), definition);
    responses.begin();
    await responses.sendRest([anyPack(serverStream.input, request)]);
  });
  router.bidiStream(bidiStream, (call) => talk(call, answerOf(call)));
}

/** The only response. Throws where the call has to fail. */
async function answered(
  call: Call,
  answer: Answer,
  definition: UnaryResponseDefinition | undefined,
  requests: Any[],
): Promise<{ payload: ConformancePayload }> {
  const requestInfo = { ...seen(call), requests };
  if (definition === undefined) return { payload: create(ConformancePayloadSchema, { requestInfo }) };
  const { responseHeaders, responseTrailers, responseDelayMs, response } = definition;
  answer.add(responseHeaders, responseTrailers);
  await pause(call, responseDelayMs);
  if (response.case === "error") throw failure(answer, response.value, requestInfo);
  const data = response.value ?? new Uint8Array();
  return { payload: create(ConformancePayloadSchema, { data, requestInfo }) };
}

/** The error that a call ends with if nothing else was sent: its details describe the call. */
function failure(answer: Answer, { code, message, details }: WantedError, info: RequestInfo | undefined): AgentError {
  answer.replaceStatus(code, info === undefined ? details : [...details, anyPack(RequestInfoSchema, info)]);
  return new AgentError("INTERNAL", "INTERNAL", message ?? "");
}

async function talk(call: Call, answer: Answer): Promise<void> {
  const { input } = ConformanceService.method.bidiStream;
  let responses: Responses | undefined;
  let isFullDuplex = false;
  let requests: Any[] = [];
  const messages = call.messages();
  for (let next = await messages.next(); next !== undefined; next = await messages.next()) {
    const request = decodeMessage(input, next.bytes);
    requests.push(anyPack(input, request));
    if (responses === undefined) {
      if (request.responseDefinition !== undefined) {
        responses = new Responses(call, answer, request.responseDefinition);
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

/** The responses of one call. Those of both kinds of streams are the same on the wire. */
class Responses {
  readonly #call: Call;
  readonly #answer: Answer;
  readonly #definition: StreamResponseDefinition;
  #sent = 0;

  constructor(call: Call, answer: Answer, definition: StreamResponseDefinition) {
    this.#call = call;
    this.#answer = answer;
    this.#definition = definition;
    answer.add(definition.responseHeaders, definition.responseTrailers);
  }

  get isOver(): boolean {
    return this.#sent >= this.#definition.responseData.length;
  }

  begin(): void {
    this.#answer.begin();
  }

  /** Sends the next response: the first describes the whole call, a later one only the requests since then. */
  async send(requests: Any[]): Promise<void> {
    const data = this.#definition.responseData[this.#sent] ?? new Uint8Array();
    const isFirst = this.#sent++ === 0;
    const requestInfo = isFirst ? { ...seen(this.#call), requests } : create(RequestInfoSchema, { requests });
    const isTold = isFirst || requests.length > 0;
    const payload = create(ConformancePayloadSchema, { data, ...(isTold && { requestInfo }) });
    await pause(this.#call, this.#definition.responseDelayMs);
    this.#call.send(messageFrame(BidiStreamResponseSchema, create(BidiStreamResponseSchema, { payload })));
    await this.#call.drained();
  }

  /** Sends the responses that are left, and fails if the call has to. */
  async sendRest(requests: Any[]): Promise<void> {
    let unsent = requests;
    while (!this.isOver) {
      await this.send(unsent);
      unsent = [];
    }
    const { error } = this.#definition;
    const info = this.#sent === 0 ? { ...seen(this.#call), requests } : undefined;
    if (error !== undefined) throw failure(this.#answer, error, info);
  }
}

/** Waits as long as the suite requires, or throws why the call was aborted. */
async function pause({ signal }: Call, durationMs: number): Promise<void> {
  await delay(durationMs, undefined, { signal }).catch(() => signal.throwIfAborted());
}

/** What the server knows of a call before its messages. */
function seen({ metadata }: Call): RequestInfo {
  const fields = Object.entries(metadata).filter(([name]) => !name.startsWith(":"));
  const { timeoutMs } = parseTimeout(metadata["grpc-timeout"] ?? null, Number.POSITIVE_INFINITY);
  return create(RequestInfoSchema, {
    requestHeaders: fields.map(([name, value = ""]) => ({ name, value: [value] })),
    ...(timeoutMs !== undefined && { timeoutMs: BigInt(Math.floor(timeoutMs)) }),
  });
}
