import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { DescMessage, DescMethod, MessageShape } from "@bufbuild/protobuf";
import { AgentError, type Clock, type Log, MESSAGE_LIMIT_BYTES } from "../domain/index.ts";
import { Call } from "./call.ts";
import { decodeMessage, messageFrame } from "./codec.ts";
import type { CallContext, Interceptor, RawCall, Session } from "./context.ts";
import { malformedMessage } from "./framing.ts";
import { httpRefusal, requestTimeoutMs, requireIdentityEncoding } from "./request-head.ts";

/** A method descriptor of one of the four kinds, as generated services have them. */
export type Method<Kind extends DescMethod["methodKind"], I extends DescMessage, O extends DescMessage> = DescMethod & {
  readonly methodKind: Kind;
  readonly input: I;
  readonly output: O;
};

/** What a router needs. */
export interface RouterOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Value of the response header `svc-agent-version`. */
  readonly agentVersion: string;
  /** Largest message in either direction, in bytes. */
  readonly messageLimitBytes?: number;
  /** Told of every call when it is over. */
  readonly onCall?: () => void;
}

type RawHandler = (call: RawCall) => Promise<void>;

/** Finds the handler of each call and turns whatever it does into a response. */
export class Router {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #messageLimitBytes: number;
  readonly #onCall: (() => void) | undefined;
  readonly #responseHeaders: OutgoingHttpHeaders;
  readonly #handlers = new Map<string, RawHandler>();
  readonly #calls = new Set<Call>();

  constructor(options: RouterOptions) {
    this.#clock = options.clock;
    this.#log = options.log;
    this.#messageLimitBytes = options.messageLimitBytes ?? MESSAGE_LIMIT_BYTES;
    this.#onCall = options.onCall;
    this.#responseHeaders = {
      ":status": 200,
      "content-type": "application/grpc+proto",
      "svc-agent-version": options.agentVersion,
    };
  }

  /**
   * One request message, one response message. `arrived` runs as soon as the call is admitted, before its message is
   * read, and what it returns runs when the call is over.
   */
  unary<I extends DescMessage, O extends DescMessage>(
    method: Method<"unary", I, O>,
    handler: (request: MessageShape<I>, context: CallContext) => MessageShape<O> | Promise<MessageShape<O>>,
    arrived?: () => () => void,
  ): void {
    this.#register(method, async (call) => {
      const over = arrived?.();
      try {
        const request = decodeMessage(method.input, await onlyMessage(call));
        call.send(messageFrame(method.output, await handler(request, call)));
      } finally {
        over?.();
      }
    });
  }

  /** One request message; the handler sends what it likes and ends the response by resolving. */
  serverStream<I extends DescMessage, O extends DescMessage>(
    method: Method<"server_streaming", I, O>,
    handler: (request: MessageShape<I>, call: RawCall) => Promise<void>,
  ): void {
    this.#register(method, async (call) => handler(decodeMessage(method.input, await onlyMessage(call)), call));
  }

  /** The handler reads the messages itself and resolves with the one response. */
  clientStream<I extends DescMessage, O extends DescMessage>(
    method: Method<"client_streaming", I, O>,
    handler: (call: RawCall) => Promise<MessageShape<O>>,
  ): void {
    this.#register(method, async (call) => call.send(messageFrame(method.output, await handler(call))));
  }

  /** The handler reads and sends messages itself, and ends the response by resolving. */
  bidiStream<I extends DescMessage, O extends DescMessage>(
    method: Method<"bidi_streaming", I, O>,
    handler: (call: RawCall) => Promise<void>,
  ): void {
    this.#register(method, handler);
  }

  /** Answers one HTTP/2 stream. Never throws. */
  handle(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, session: Session, interceptor: Interceptor): void {
    // The stream's end and its error code arrive with "close" as well.
    stream.on("error", () => {});
    const refusal = httpRefusal(headers);
    if (refusal !== undefined) {
      stream.respond(refusal, { endStream: true });
      return;
    }
    const call = new Call(stream, {
      metadata: headers,
      receivedAt: { wallNs: this.#clock.wallNs(), monotonicMs: this.#clock.monotonicMs() },
      session,
      responseHeaders: this.#responseHeaders,
      messageLimitBytes: this.#messageLimitBytes,
    });
    void this.#serve(call, interceptor);
  }

  /** Tells every handler that its call is over, and answers each call with the error. */
  abortCalls(error: AgentError): void {
    for (const call of this.#calls) {
      call.abort(error);
      call.finish(error);
    }
  }

  #register(method: DescMethod, handler: RawHandler): void {
    const path = `/${method.parent.typeName}/${method.name}`;
    if (this.#handlers.has(path)) throw new Error(`${path} has a handler already`);
    this.#handlers.set(path, handler);
  }

  async #serve(call: Call, interceptor: Interceptor): Promise<void> {
    this.#calls.add(call);
    try {
      const timeoutMs = requestTimeoutMs(call.metadata);
      if (timeoutMs !== undefined) call.startDeadline(timeoutMs);
      // Awaiting only where there is something to wait for keeps a call's start within one turn of the loop.
      const decision = interceptor(call.metadata);
      const refused = decision instanceof Promise ? await decision : decision;
      if (refused !== undefined) throw refused;
      requireIdentityEncoding(call.metadata);
      if (call.aborted !== undefined) throw call.aborted;
      await this.#find(call.metadata[":path"])(call);
      call.finish();
    } catch (error) {
      call.finish(this.#toAgentError(error, call));
    } finally {
      this.#calls.delete(call);
      this.#onCall?.();
    }
  }

  #find(path: string | undefined): RawHandler {
    const handler = this.#handlers.get(path ?? "");
    if (handler !== undefined) return handler;
    const method = (path ?? "").slice(0, 200);
    throw new AgentError("UNIMPLEMENTED", "UNIMPLEMENTED", `there is no method ${method}`, { method });
  }

  /** What is not an AgentError is a fault of ours: its text goes to the log, not to the client. */
  #toAgentError(error: unknown, call: Call): AgentError {
    if (error instanceof AgentError) return error;
    const method = call.metadata[":path"];
    this.#log.error("call_failed", {
      method,
      error: error instanceof Error ? (error.stack ?? error.message) : "unknown",
    });
    return new AgentError("INTERNAL", "INTERNAL", "the agent failed at this call; its log says why", {}, error);
  }
}

async function onlyMessage(call: RawCall): Promise<Uint8Array> {
  let only: Uint8Array | undefined;
  for await (const message of call.messages()) {
    if (only !== undefined) throw malformedMessage("the request has more than one message; the method takes one");
    only = message;
  }
  if (only === undefined) throw malformedMessage("the request has no message; the method takes one");
  return only;
}
