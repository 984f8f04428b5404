import { readFileSync } from "node:fs";
import { createFileRegistry, type FileRegistry, fromBinary, type Message } from "@bufbuild/protobuf";
import type { GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import { type Any, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

/*
 * The suite's messages, as far as they are used here. Their schema is the suite's own: what it is built from is read when a
 * program of ours starts, so that another version of the suite brings its own.
 */

/** A field of headers or trailers; it stands there once for each value. */
export interface Header extends Message<"connectrpc.conformance.v1.Header"> {
  name: string;
  value: string[];
}

/** The error that a call has to end with. */
export interface WantedError extends Message<"connectrpc.conformance.v1.Error"> {
  /** As gRPC numbers them. */
  code: number;
  message?: string;
  details: Any[];
}

/** What to answer to a call with one response. */
export interface UnaryDefinition extends Message<"connectrpc.conformance.v1.UnaryResponseDefinition"> {
  responseHeaders: Header[];
  response:
    | { case: "responseData"; value: Uint8Array }
    | { case: "error"; value: WantedError }
    | { case: undefined; value?: undefined };
  responseTrailers: Header[];
  responseDelayMs: number;
}

/** What to answer to a call with many responses. */
export interface StreamDefinition extends Message<"connectrpc.conformance.v1.StreamResponseDefinition"> {
  responseHeaders: Header[];
  responseData: Uint8Array[];
  responseDelayMs: number;
  error?: WantedError;
  responseTrailers: Header[];
}

interface Asked<Name extends string, Definition> extends Message<Name> {
  responseDefinition?: Definition;
}

interface BidiRequest extends Asked<"connectrpc.conformance.v1.BidiStreamRequest", StreamDefinition> {
  fullDuplex: boolean;
}

/** What the server saw of a call. */
interface RequestInfo extends Message<"connectrpc.conformance.v1.ConformancePayload.RequestInfo"> {
  requestHeaders: Header[];
  timeoutMs?: bigint;
  requests: Any[];
}

/** The content of every response. */
export interface Payload extends Message<"connectrpc.conformance.v1.ConformancePayload"> {
  data: Uint8Array;
  requestInfo?: RequestInfo;
}

interface Answer<Name extends string> extends Message<Name> {
  payload?: Payload;
}

interface Method<Kind extends string, I extends Message, O extends Message> {
  methodKind: Kind;
  input: GenMessage<I>;
  output: GenMessage<O>;
}

type UnaryRequest = Asked<"connectrpc.conformance.v1.UnaryRequest", UnaryDefinition>;
type IdempotentRequest = Asked<"connectrpc.conformance.v1.IdempotentUnaryRequest", UnaryDefinition>;

/** The suite's service. */
type ConformanceService = GenService<{
  unary: Method<"unary", UnaryRequest, Answer<"connectrpc.conformance.v1.UnaryResponse">>;
  idempotentUnary: Method<"unary", IdempotentRequest, Answer<"connectrpc.conformance.v1.IdempotentUnaryResponse">>;
  serverStream: Method<
    "server_streaming",
    Asked<"connectrpc.conformance.v1.ServerStreamRequest", StreamDefinition>,
    Answer<"connectrpc.conformance.v1.ServerStreamResponse">
  >;
  clientStream: Method<
    "client_streaming",
    Asked<"connectrpc.conformance.v1.ClientStreamRequest", UnaryDefinition>,
    Answer<"connectrpc.conformance.v1.ClientStreamResponse">
  >;
  bidiStream: Method<"bidi_streaming", BidiRequest, Answer<"connectrpc.conformance.v1.BidiStreamResponse">>;
}>;

/** Configuration of the server. */
export interface ServerRequest extends Message<"connectrpc.conformance.v1.ServerCompatRequest"> {
  useTls: boolean;
  /** PEM; empty: clients show none. */
  clientTlsCert: Uint8Array;
  /** Bytes; 0: no limit of the suite's. */
  messageReceiveLimit: number;
  serverCreds?: Message<"connectrpc.conformance.v1.TLSCreds"> & { cert: Uint8Array; key: Uint8Array };
}

/** Where the server is. */
interface ServerResponse extends Message<"connectrpc.conformance.v1.ServerCompatResponse"> {
  host: string;
  port: number;
  pemCert: Uint8Array;
}

/** The suite's schema. */
export interface Schema {
  readonly service: ConformanceService;
  readonly payload: GenMessage<Payload>;
  readonly requestInfo: GenMessage<RequestInfo>;
  readonly serverRequest: GenMessage<ServerRequest>;
  readonly serverResponse: GenMessage<ServerResponse>;
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
  };
}

function named(registry: FileRegistry, kind: "service" | "message", name: string): unknown {
  const found = registry.get(`connectrpc.conformance.v1.${name}`);
  if (found?.kind !== kind) throw new Error(`the suite's schema has no ${kind} ${name}`);
  return found;
}
