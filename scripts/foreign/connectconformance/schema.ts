import { readFileSync } from "node:fs";
import { createFileRegistry, type FileRegistry, fromBinary, type Message } from "@bufbuild/protobuf";
import type { GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import { type Any, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

/*
 * The suite's messages, as far as they are used here. Their schema is the suite's own: our programs read it from a file
 * at their start, so that another version of the suite brings its own.
 */

/** A field of headers or trailers with its values. */
export interface Header extends Message {
  name: string;
  value: string[];
}

/** The error that a call has to end with. */
export interface WantedError extends Message {
  /** As gRPC numbers them. */
  code: number;
  message?: string;
  details: Any[];
}

/** What to answer to a call with one response. */
export interface UnaryDefinition extends Message {
  responseHeaders: Header[];
  response:
    | { case: "responseData"; value: Uint8Array }
    | { case: "error"; value: WantedError }
    | { case: undefined; value?: undefined };
  responseTrailers: Header[];
  responseDelayMs: number;
}

/** What to answer to a call with many responses. */
export interface StreamDefinition extends Message {
  responseHeaders: Header[];
  responseData: Uint8Array[];
  responseDelayMs: number;
  error?: WantedError;
  responseTrailers: Header[];
}

/** The content of every response; the first describes what the server saw of the call. */
export interface Payload extends Message {
  data: Uint8Array;
  requestInfo?: RequestInfo;
}

interface RequestInfo extends Message {
  requestHeaders: Header[];
  timeoutMs?: bigint;
  requests: Any[];
}

interface Asked<Definition> extends Message {
  responseDefinition?: Definition;
}

interface AskedInTurns extends Asked<StreamDefinition> {
  fullDuplex: boolean;
}

interface Answer extends Message {
  payload?: Payload;
}

interface Method<Kind extends string, Request extends Message, Response extends Message = Answer> {
  methodKind: Kind;
  input: GenMessage<Request>;
  output: GenMessage<Response>;
}

/** The suite's service. */
type ConformanceService = GenService<{
  unary: Method<"unary", Asked<UnaryDefinition>>;
  idempotentUnary: Method<"unary", Asked<UnaryDefinition>>;
  serverStream: Method<"server_streaming", Asked<StreamDefinition>>;
  clientStream: Method<"client_streaming", Asked<UnaryDefinition>>;
  bidiStream: Method<"bidi_streaming", AskedInTurns>;
  unimplemented: Method<"unary", Message, Message>;
}>;

/** In PEM. */
interface TlsCreds extends Message {
  cert: Uint8Array;
  key: Uint8Array;
}

/** Configuration of the server. */
export interface ServerRequest extends Message {
  useTls: boolean;
  /** PEM; empty: clients show none. */
  clientTlsCert: Uint8Array;
  /** Bytes; 0: no limit of the suite's. */
  messageReceiveLimit: number;
  serverCreds?: TlsCreds;
}

/** Where the server is. */
interface ServerResponse extends Message {
  host: string;
  port: number;
  pemCert: Uint8Array;
}

/** When to cancel a call. */
export type CancelTiming =
  | { case: "beforeCloseSend"; value: Message }
  | { case: "afterCloseSendMs" | "afterNumResponses"; value: number }
  | { case: undefined; value?: undefined };

/** A call that the client has to make. */
export interface ClientRequest extends Message {
  testName: string;
  host: string;
  port: number;
  /** PEM; empty: without TLS. */
  serverTlsCert: Uint8Array;
  clientTlsCreds?: TlsCreds;
  /** Bytes; 0: no limit of the suite's. */
  messageReceiveLimit: number;
  method?: string;
  /** As the suite's StreamType numbers them. */
  streamType: number;
  requestHeaders: Header[];
  requestMessages: Any[];
  timeoutMs?: number;
  requestDelayMs: number;
  cancel?: Message & { cancelTiming: CancelTiming };
}

/** Result of a call. */
export interface ClientResult extends Message {
  responseHeaders: Header[];
  payloads: Payload[];
  error?: WantedError;
  responseTrailers: Header[];
  numUnsentRequests: number;
}

/** Why a call could not be made. */
interface ClientError extends Message {
  message: string;
}

/** The answer to a ClientRequest. */
interface ClientResponse extends Message {
  testName: string;
  result:
    | { case: "response"; value: ClientResult }
    | { case: "error"; value: ClientError }
    | { case: undefined; value?: undefined };
}

/** The suite's schema. */
export interface Schema {
  readonly service: ConformanceService;
  readonly payload: GenMessage<Payload>;
  readonly requestInfo: GenMessage<RequestInfo>;
  readonly serverRequest: GenMessage<ServerRequest>;
  readonly serverResponse: GenMessage<ServerResponse>;
  readonly clientRequest: GenMessage<ClientRequest>;
  readonly clientResponse: GenMessage<ClientResponse>;
  readonly clientResult: GenMessage<ClientResult>;
  readonly clientError: GenMessage<ClientError>;
  readonly header: GenMessage<Header>;
  readonly error: GenMessage<WantedError>;
}

/** Reads the schema from a file of descriptors, as `buf build` makes them. */
export function readSchema(path: string): Schema {
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(path)));
  return {
    service: named(registry, "service", "ConformanceService") as ConformanceService,
    payload: named(registry, "message", "ConformancePayload") as GenMessage<Payload>,
    requestInfo: named(registry, "message", "ConformancePayload.RequestInfo") as GenMessage<RequestInfo>,
    serverRequest: named(registry, "message", "ServerCompatRequest") as GenMessage<ServerRequest>,
    serverResponse: named(registry, "message", "ServerCompatResponse") as GenMessage<ServerResponse>,
    clientRequest: named(registry, "message", "ClientCompatRequest") as GenMessage<ClientRequest>,
    clientResponse: named(registry, "message", "ClientCompatResponse") as GenMessage<ClientResponse>,
    clientResult: named(registry, "message", "ClientResponseResult") as GenMessage<ClientResult>,
    clientError: named(registry, "message", "ClientErrorResult") as GenMessage<ClientError>,
    header: named(registry, "message", "Header") as GenMessage<Header>,
    error: named(registry, "message", "Error") as GenMessage<WantedError>,
  };
}

function named(registry: FileRegistry, kind: "service" | "message", name: string): unknown {
  const found = registry.get(`connectrpc.conformance.v1.${name}`);
  if (found?.kind !== kind) throw new Error(`the suite's schema has no ${kind} ${name}`);
  return found;
}
