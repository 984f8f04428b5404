import type {
  DescMessage,
  DescMethod,
  DescMethodBiDiStreaming,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageShape,
} from "@bufbuild/protobuf";
import {
  AgentError,
  Allowance,
  type Clock,
  Lazy,
  type Log,
  MESSAGE_LIMIT_BYTES,
  UNREAD_LIMIT_BYTES,
} from "../domain/index.ts";
import type { Fields, Http2Stream, RequestFields } from "../http2/index.ts";
import { Call } from "./call.ts";
import { type Frame, messageFrame } from "./codec.ts";
import type { Connection } from "../listening/index.ts";
import { SpareMemory } from "./message-buffers.ts";
import { httpRefusal, requestTimeoutMs, requireIdentityEncoding } from "./request-head.ts";

/** Limit for the output of ended calls that their clients have not read yet. */
const UNREAD_ANSWERS_LIMIT_BYTES: number = 4 * 1024 * 1024;

export interface RouterOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Value of the response header `svc-agent-version`. */
  readonly agentVersion: string;
  /** Limit for the size of a request message in bytes. Default: MESSAGE_LIMIT_BYTES. */
  readonly messageLimitBytes?: number;
  /** Called with the number of running calls when one begins or ends. */
  readonly onCalls?: (running: number) => void;
  /** Called with true when the first large call begins, and with false when the last one has ended. */
  readonly onLargeCalls?: (any: boolean) => void;
}

/** Handles a call and then calls `over`, with an error if the call failed. */
type RawHandler = (call: Call, over: (error?: unknown) => void) => void;

/** A response message, or a frame that the handler has encoded itself. */
type Response<O extends DescMessage> = MessageShape<O> | Frame;

/** Runs before the handler, and before any of the call's body is read. Returns an error to reject the call. */
export type Interceptor = (metadata: RequestFields) => AgentError | undefined | Promise<AgentError | undefined>;

/** Finds the handler of each call and turns its result or error into a response. */
export class Router {
  readonly #options: RouterOptions;
  readonly #versionField: Fields;
  readonly #responseFields: Fields;
  readonly #handlers = new Map<string, RawHandler>();
  /** Services that are loaded at their first call, by name. */
  readonly #lazy = new Map<string, () => Promise<void>>();
  readonly #calls = new Set<Call>();
  #largeCalls = 0;
  readonly #onLarge: (change: 1 | -1) => void;
  readonly #unread: Allowance;
  readonly #unreadAnswers: Allowance;
  readonly #spare = new SpareMemory();

  constructor(options: RouterOptions) {
    this.#options = options;
    this.#onLarge = (change) => {
      const before = this.#largeCalls;
      this.#largeCalls += change;
      if (before === 0 || this.#largeCalls === 0) options.onLargeCalls?.(this.#largeCalls > 0);
    };
    this.#versionField = { "svc-agent-version": options.agentVersion };
    this.#unread = new Allowance({ limit: UNREAD_LIMIT_BYTES, clock: options.clock, refusal: tooMuchUnread });
    // Limits the memory for unsent messages of ended calls whose clients do not read. At the limit, the stream of the
    // oldest such call is reset at once, without a grace period (patienceMs is 0). So a call that attaches to a kept
    // command need not wait until the client of the previous call reads.
    this.#unreadAnswers = new Allowance({
      limit: UNREAD_ANSWERS_LIMIT_BYTES,
      patienceMs: 0,
      clock: options.clock,
      refusal: tooMuchUnread,
    });
    this.#responseFields = { ":status": "200", "content-type": "application/grpc+proto", ...this.#versionField };
  }

  /**
   * Registers a unary method. `arrived` runs when a call is admitted, before its message is read. The function that
   * `arrived` returns runs when the call has ended.
   */
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    handler: (request: MessageShape<I>, call: Call) => Response<O> | Promise<Response<O>>,
    arrived?: () => () => void,
  ): void {
    this.#register(method, (call, over) => {
      const left = arrived?.();
      const end = (error?: unknown): void => {
        left?.();
        over(error);
      };
      const answer = (response: Response<O>): void => {
        call.answer(isFrame(response) ? response : messageFrame(method.output, response));
        end();
      };
      // If the handler is synchronous, the response is sent in the same tick of the event loop in which the request
      // ends, because `only` calls this function in that tick.
      call.messages().only((bytes) => {
        try {
          const response = handler(call.decode(method.input, bytes), call);
          if (response instanceof Promise) response.then(answer).catch(end);
          else answer(response);
        } catch (error) {
          end(error);
        }
      }, end);
    });
  }

  /** Registers a server-streaming method. The handler sends messages and ends the response by resolving. */
  serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    handler: (request: MessageShape<I>, call: Call) => Promise<void>,
  ): void {
    this.#register(method, (call, over) => {
      call.messages().only((bytes) => {
        settle(async () => handler(call.decode(method.input, bytes), call), over);
      }, over);
    });
  }

  /** Registers a client-streaming method. The handler reads messages and resolves with the response. */
  clientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodClientStreaming<I, O>,
    handler: (call: Call) => Promise<MessageShape<O>>,
  ): void {
    this.#register(method, (call, over) => {
      settle(async () => call.send(messageFrame(method.output, await handler(call))), over);
    });
  }

  /** Registers a bidirectional method. The handler reads and sends messages, and ends the response by resolving. */
  bidiStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodBiDiStreaming<I, O>,
    handler: (call: Call) => Promise<void>,
  ): void {
    this.#register(method, (call, over) => settle(async () => handler(call), over));
  }

  /** Registers a service that is loaded at the first call of one of its methods. */
  registerLazy(service: string, load: () => Promise<void>): void {
    const lazy = new Lazy(load);
    this.#lazy.set(service, () => lazy.get());
  }

  /** Full names of the registered services, sorted. */
  services(): readonly string[] {
    const registered = [...this.#handlers.keys()].map((path) => path.slice(1, path.lastIndexOf("/")));
    return [...new Set([...registered, ...this.#lazy.keys()])].toSorted();
  }

  /** Serves one request. Never throws. */
  handle(stream: Http2Stream, fields: RequestFields, connection: Connection, interceptor: Interceptor): void {
    const { clock } = this.#options;
    const call = new Call(stream, {
      metadata: fields,
      receivedAt: { wallNs: clock.wallNs(), monotonicMs: clock.monotonicMs() },
      connection,
      responseFields: this.#responseFields,
      unread: this.#unread,
      unreadAnswers: this.#unreadAnswers,
      spare: this.#spare,
      messageLimitBytes: this.#options.messageLimitBytes ?? MESSAGE_LIMIT_BYTES,
      onLarge: this.#onLarge,
    });
    const refusal = httpRefusal(fields);
    if (refusal === undefined) {
      this.#serve(call, interceptor);
      return;
    }
    call.whenRequestEnds(() => {
      stream.respond({ ...refusal.fields, ...this.#versionField });
      stream.write([Buffer.from(refusal.body)]);
      stream.end();
    });
  }

  /** Aborts all calls, or those of some connections, and answers each with the error. */
  abortCalls(error: AgentError, connections?: ReadonlySet<Connection>): void {
    for (const call of this.#calls) {
      if (connections !== undefined && !connections.has(call.connection)) continue;
      call.abort(error);
      call.finish(error);
    }
  }

  #register(method: DescMethod, handler: RawHandler): void {
    const path = `/${method.parent.typeName}/${method.name}`;
    if (this.#handlers.has(path)) throw new Error(`${path} already has a handler`);
    this.#handlers.set(path, handler);
  }

  #serve(call: Call, interceptor: Interceptor): void {
    this.#calls.add(call);
    this.#options.onCalls?.(this.#calls.size);
    const over = (error?: unknown): void => {
      call.finish(error === undefined ? undefined : this.#toAgentError(error, call));
      this.#calls.delete(call);
      this.#options.onCalls?.(this.#calls.size);
    };
    const reject = (error: unknown): void => call.whenRequestEnds(() => over(error));
    try {
      const timeoutMs = requestTimeoutMs(call.metadata);
      if (timeoutMs !== undefined) call.startDeadline(timeoutMs);
      // The interceptor's decision is awaited only if it is a promise, so that most calls start in this tick of the
      // event loop.
      const decision = interceptor(call.metadata);
      if (decision instanceof Promise) decision.then((refused) => this.#admit(call, refused, over)).catch(reject);
      else this.#admit(call, decision, over);
    } catch (error) {
      reject(error);
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
    const [, service = ""] = (path ?? "").split("/", 2);
    const load = this.#lazy.get(service);
    if (load !== undefined) return (call, over) => this.#serveLazy(load, service, call, over);
    const method = (path ?? "").slice(0, 200);
    throw new AgentError("UNIMPLEMENTED", "UNIMPLEMENTED", `there is no method ${method}`, { method });
  }

  #serveLazy(load: () => Promise<void>, service: string, call: Call, over: (error?: unknown) => void): void {
    const serve = (): void => {
      this.#lazy.delete(service);
      if (call.aborted !== undefined) throw call.aborted;
      this.#find(call.metadata[":path"])(call, over);
    };
    load()
      .then(serve)
      .catch((error: unknown) => call.whenRequestEnds(() => over(error)));
  }

  /** Returns an AgentError unchanged. Any other error is an internal error, whose text is logged but not sent. */
  #toAgentError(error: unknown, call: Call): AgentError {
    if (error instanceof AgentError) return error;
    const method = call.metadata[":path"];
    this.#options.log.error("call_failed", {
      method,
      error: error instanceof Error ? (error.stack ?? error.message) : "unknown",
    });
    return new AgentError("INTERNAL", "INTERNAL", "internal error in this call; see the agent's log", {}, error);
  }
}

function isFrame(response: Response<DescMessage>): response is Frame {
  return Array.isArray(response);
}

/** Runs a handler. Calls `over` when the handler has ended, with the error if it failed. */
function settle(handler: () => Promise<void>, over: (error?: unknown) => void): void {
  handler().then(() => over(), over);
}

function tooMuchUnread(because: string): AgentError {
  const message = `the limit of ${UNREAD_LIMIT_BYTES} bytes of unread requests is reached: ${because}`;
  return new AgentError("RESOURCE_EXHAUSTED", "TOO_MUCH_UNREAD", message, { limitBytes: String(UNREAD_LIMIT_BYTES) });
}
