import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { Any } from "@bufbuild/protobuf/wkt";
import type { Fields, Http2Stream, RequestFields } from "../../../../src/agent/http2/index.ts";
import type { Connection } from "../../../../src/agent/listening/index.ts";
import { Router, type Interceptor } from "../../../../src/agent/rpc/index.ts";
import type { Code } from "./gen/connectrpc/conformance/v1/config_pb.ts";
import { ErrorSchema, type Header } from "./gen/connectrpc/conformance/v1/service_pb.ts";

const DETAILS_FIELD = "grpc-status-details-bin";

/**
 * What the suite requires on top of the agent's own answers: header fields, trailers, statuses that no error of the
 * agent has, and details. They are added where the agent's gRPC passes its answer to HTTP/2, which sends and splits it
 * as any other. The ErrorInfo of the agent's own errors is left out, because the suite fails a detail that it did not
 * request.
 */
export class Answer {
  readonly #stream: Http2Stream;
  readonly #respond: Http2Stream["respond"];
  readonly #end: Http2Stream["end"];
  #headers: Fields = {};
  #trailers: Fields = {};
  #status: { readonly code: Code; readonly details: readonly Any[] } | undefined;

  constructor(stream: Http2Stream) {
    this.#stream = stream;
    this.#respond = stream.respond.bind(stream);
    this.#end = stream.end.bind(stream);
    stream.respond = (fields, endStream) => this.#onRespond(fields, endStream === true);
    stream.end = (trailers) => {
      // An answer that is not gRPC has no trailers.
      this.#end(trailers === undefined ? undefined : this.#ending(trailers));
    };
  }

  /** Adds header fields, and trailers whatever the call's status. */
  add(headers: readonly Header[], trailers: readonly Header[]): void {
    this.#headers = fieldsOf(headers);
    this.#trailers = fieldsOf(trailers);
  }

  /** Sends the header fields before the first message. */
  begin(): void {
    this.#stream.respond({ ":status": "200", "content-type": "application/grpc+proto" });
  }

  /** Replaces the code and the details of the error that follows. */
  replaceStatus(code: Code, details: readonly Any[]): void {
    this.#status = { code, details };
  }

  #onRespond(fields: Fields, endStream: boolean): void {
    if (!endStream) {
      this.#respond({ ...fields, ...this.#headers });
      return;
    }
    if (Object.keys(this.#headers).length === 0) {
      this.#respond(fields, true);
      return;
    }
    const isOfEnd = ([name]: [string, string]): boolean => name.startsWith("grpc-");
    const all = Object.entries(fields);
    this.#respond({ ...Object.fromEntries(all.filter((field) => !isOfEnd(field))), ...this.#headers });
    this.#stream.end(Object.fromEntries(all.filter(isOfEnd)));
  }

  #ending(trailers: Fields): Fields {
    const status = this.#status;
    if (status === undefined) {
      const { [DETAILS_FIELD]: _, ...others } = trailers;
      return { ...others, ...this.#trailers };
    }
    const details = withDetails(trailers[DETAILS_FIELD] ?? "", status.code, status.details);
    return { ...trailers, "grpc-status": String(status.code), [DETAILS_FIELD]: details, ...this.#trailers };
  }
}

/** The agent's router; the handlers of its calls find the call's Answer. */
export class AnsweringRouter extends Router {
  readonly #answers = new WeakMap<RequestFields, Answer>();

  override handle(stream: Http2Stream, fields: RequestFields, connection: Connection, interceptor: Interceptor): void {
    this.#answers.set(fields, new Answer(stream));
    super.handle(stream, fields, connection, interceptor);
  }

  /** The Answer of a call, by its header fields. */
  answerOf(metadata: RequestFields): Answer {
    const answer = this.#answers.get(metadata);
    if (answer === undefined) throw new Error("the call did not come through this router");
    return answer;
  }
}

function fieldsOf(headers: readonly Header[]): Fields {
  return Object.fromEntries(headers.map(({ name, value }) => [name.toLowerCase(), value.join(", ")]));
}

/** A google.rpc.Status in base64, whose fields are those of the suite's Error, with another code and other details. */
function withDetails(base64: string, code: Code, details: readonly Any[]): string {
  const { message = "" } = fromBinary(ErrorSchema, Buffer.from(base64, "base64"));
  const status = toBinary(ErrorSchema, create(ErrorSchema, { code, message, details: [...details] }));
  return Buffer.from(status).toString("base64").replace(/=+$/, "");
}
