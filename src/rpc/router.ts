import type { DescMessage, DescMethod, MessageShape } from "@bufbuild/protobuf";
import {
  AgentError,
  Allowance,
  type Clock,
  type Log,
  MESSAGE_LIMIT_BYTES,
  UNREAD_LIMIT_BYTES,
} from "../domain/index.ts";
import type { Fields, Http2Stream, RequestFields } from "../http2/index.ts";
import { Call } from "./call.ts";
import { decodeMessage, type Frame, messageFrame } from "./codec.ts";
import type { CallContext, Interceptor, RawCall, Session } from "./context.ts";
import { type HttpRefusal, httpRefusal, requestTimeoutMs, requireIdentityEncoding } from "./request-head.ts";

/** How much is read of a request that is not gRPC before it is answered. */
const REFUSED_BODY_LIMIT_BYTES = 64 * 1024;

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
  /** Called with the number of calls when one begins or ends. */
  readonly onCalls?: (running: number) => void;
  /** Called with true when there is a first large call, and with false when the last is over. */
  readonly onLargeCalls?: (any: boolean) => void;
}

/** Handles a call, then calls `over`, with the error for its status if it failed. */
type RawHandler = (call: Call, over: (error?: unknown) => void) => void;

/** Finds each call's handler and turns its result or error into a response. */
export class Router {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #messageLimitBytes: number;
  readonly #onCalls: ((running: number) => void) | undefined;
  readonly #versionField: Fields;
  readonly #responseFields: Fields;
  readonly #handlers = new Map<string, RawHandler>();
  readonly #calls = new Set<Call>();
  #largeCalls = 0;
  readonly #onLarge: (change: 1 | -1) => void;
  readonly #unread: Allowance;

  constructor(options: RouterOptions) {
    this.#clock = options.clock;
    this.#log = options.log;
    this.#messageLimitBytes = options.messageLimitBytes ?? MESSAGE_LIMIT_BYTES;
    this.#onCalls = options.onCalls;
    this.#onLarge = (change) => {
      const before = this.#largeCalls;
      this.#largeCalls += change;
      if (before === 0 || this.#largeCalls === 0) options.onLargeCalls?.(this.#largeCalls > 0);
    };
    this.#versionField = { "svc-agent-version": options.agentVersion };
    this.#unread = new Allowance({ limit: UNREAD_LIMIT_BYTES, clock: options.clock, refusal: tooMuchUnread });
    this.#responseFields = {
      ":status": "200",
      "content-type": "application/grpc+proto",
      ...this.#versionField,
    };
  }

  /**
   * Registers a method with one request and one response message. `arrived` runs when a call is admitted, before its
   * message is read; the function that it returns runs when the call is over.
   */
  unary<I extends DescMessage, O extends DescMessage>(
    method: Method<"unary", I, O>,
    handler: (request: MessageShape<I>, context: CallContext) => MessageShape<O> | Promise<MessageShape<O>>,
    arrived?: () => () => void,
  ): void {
    this.#register(method, (call, over) => {
      const left = arrived?.();
      const end = (error?: unknown): void => {
        left?.();
        over(error);
      };
      const answer = (response: MessageShape<O>): void => {
        call.answer(messageFrame(method.output, response));
        end();
      };
      // Synchronous where the handler is.
      call.messages().only((bytes) => {
        try {
          const response = handler(decodeMessage(method.input, bytes), call);
          if (response instanceof Promise) response.then(answer).catch(end);
          else answer(response);
        } catch (error) {
          end(error);
        }
      }, end);
    });
  }

  /** As `unary`, for a method that ignores its request and whose handler encodes the response itself. */
  framed<I extends DescMessage, O extends DescMessage>(method: Method<"unary", I, O>, handler: () => Frame): void {
    this.#register(method, (call, over) => {
      call.messages().only((bytes) => {
        try {
          decodeMessage(method.input, bytes);
          call.answer(handler());
          over();
        } catch (error) {
          over(error);
        }
      }, over);
    });
  }

  /** Registers a method with one request message. The handler sends messages, and ends the response by resolving. */
  serverStream<I extends DescMessage, O extends DescMessage>(
    method: Method<"server_streaming", I, O>,
    handler: (request: MessageShape<I>, call: RawCall) => Promise<void>,
  ): void {
    this.#register(method, (call, over) => {
      call.messages().only((bytes) => {
        settle(async () => handler(decodeMessage(method.input, bytes), call), over);
      }, over);
    });
  }

  /** Registers a method whose handler reads the request messages and resolves with the response. */
  clientStream<I extends DescMessage, O extends DescMessage>(
    method: Method<"client_streaming", I, O>,
    handler: (call: RawCall) => Promise<MessageShape<O>>,
  ): void {
    this.#register(method, (call, over) => {
      settle(async () => call.send(messageFrame(method.output, await handler(call))), over);
    });
  }

  /** Registers a method whose handler reads and sends messages, and ends the response by resolving. */
  bidiStream<I extends DescMessage, O extends DescMessage>(
    method: Method<"bidi_streaming", I, O>,
    handler: (call: RawCall) => Promise<void>,
  ): void {
    this.#register(method, (call, over) => settle(async () => handler(call), over));
  }

  /** Answers one request. Never throws. */
  handle(stream: Http2Stream, fields: RequestFields, session: Session, interceptor: Interceptor): void {
    const refusal = httpRefusal(fields);
    if (refusal !== undefined) {
      refuse(stream, { ...refusal, fields: { ...refusal.fields, ...this.#versionField } });
      return;
    }
    const call = new Call(stream, {
      metadata: fields,
      receivedAt: { wallNs: this.#clock.wallNs(), monotonicMs: this.#clock.monotonicMs() },
      session,
      responseFields: this.#responseFields,
      messageLimitBytes: this.#messageLimitBytes,
      unread: this.#unread,
      onLarge: this.#onLarge,
    });
    this.#serve(call, interceptor);
  }

  /** Aborts all calls, or those of some sessions, and answers each with the error. */
  abortCalls(error: AgentError, sessions?: ReadonlySet<Session>): void {
    for (const call of this.#calls) {
      if (sessions !== undefined && !sessions.has(call.session)) continue;
      call.abort(error);
      call.finish(error);
    }
  }

  #register(method: DescMethod, handler: RawHandler): void {
    const path = `/${method.parent.typeName}/${method.name}`;
    if (this.#handlers.has(path)) throw new Error(`${path} has a handler already`);
    this.#handlers.set(path, handler);
  }

  #serve(call: Call, interceptor: Interceptor): void {
    this.#calls.add(call);
    this.#onCalls?.(this.#calls.size);
    const over = (error?: unknown): void => {
      call.finish(error === undefined ? undefined : this.#toAgentError(error, call));
      this.#calls.delete(call);
      this.#onCalls?.(this.#calls.size);
    };
    const turnAway = (error: unknown): void => call.whenRequestEnds(() => over(error));
    try {
      const timeoutMs = requestTimeoutMs(call.metadata);
      if (timeoutMs !== undefined) call.startDeadline(timeoutMs);
      // Wait only for a promise, so that other calls start within one turn of the event loop.
      const decision = interceptor(call.metadata);
      if (decision instanceof Promise) decision.then((refused) => this.#admit(call, refused, over)).catch(turnAway);
      else this.#admit(call, decision, over);
    } catch (error) {
      turnAway(error);
    }
  }

  #admit(call: Call, refused: AgentError | undefined, over: (error?: unknown) => void): void {
    if (refused !== undefined) throw refused;
    requireIdentityEncoding(call.metadata);
    if (call.aborted !== undefined) throw call.aborted;
    this.#find(call.metadata[":path"])(call, over);
  }

  #find(path: string | undefined): RawHandler {
    const handler = this.#handlers.get(path ?? "");
    if (handler !== undefined) return handler;
    const method = (path ?? "").slice(0, 200);
    throw new AgentError("UNIMPLEMENTED", "UNIMPLEMENTED", `there is no method ${method}`, { method });
  }

  /** Any other error is a bug of the agent: its text goes to the log, not to the client. */
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

/** Answers once the request is complete: clients take an earlier answer for a failure. */
function refuse(stream: Http2Stream, { fields, body }: HttpRefusal): void {
  const answer = (): void => {
    stream.respond(fields);
    stream.write([Buffer.from(body)]);
    stream.end();
  };
  let receivedBytes = 0;
  stream.consumer = {
    data: ({ length }) => {
      receivedBytes += length;
      if (receivedBytes > REFUSED_BODY_LIMIT_BYTES) answer();
    },
    end: answer,
    closed: () => {},
  };
}

/** Runs a handler, then calls `over`. */
function settle(handler: () => Promise<void>, over: (error?: unknown) => void): void {
  handler().then(() => over(), over);
}

function tooMuchUnread(because: string): AgentError {
  const message = `${UNREAD_LIMIT_BYTES} bytes of requests are half here; refused because ${because}`;
  return new AgentError("RESOURCE_EXHAUSTED", "TOO_MUCH_UNREAD", message, { limitBytes: String(UNREAD_LIMIT_BYTES) });
}
