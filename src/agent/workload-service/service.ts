import { FrameWriter, type Frame, PREFIX_BYTES, timestamp } from "../rpc/index.ts";
import type { RequestFields } from "../http2/index.ts";
import type { IdleDeclarations } from "./idle-declarations.ts";
import { MESSAGE_LIMIT_BYTES } from "./limits.ts";

const DECLARE_IDLE = "/svc.guest.v1alpha1.WorkloadService/DeclareIdle";
/** Content types of gRPC (PROTOCOL-HTTP2.md) and of unary calls of Connect, which include plain JSON. */
const GRPC_TYPE = /^application\/grpc(?:\+(?:(json)(?:; ?charset=utf-?8)?|proto))?$/i;
const UNARY_TYPE = /^application\/(?:(json)(?:; ?charset=utf-?8)?|proto)$/i;
const GRPC_TIMEOUT = /^\d{1,8}[HMSmun]$/;
const CONNECT_TIMEOUT = /^\d{1,10}$/;
/** A message without fields, which most clients send. It is recognized without loading the protobuf library. */
const EMPTY_JSON = /^\s*\{\s*\}\s*$/;
const IS_COMPRESSED = 1;

/** A complete request of either HTTP version. */
export interface WorkloadRequest {
  readonly method: string;
  /** The path with its query. */
  readonly path: string;
  readonly fields: RequestFields;
  readonly body: Buffer;
}

/** The response to a WorkloadRequest, for either HTTP version. */
export interface WorkloadAnswer {
  readonly status: number;
  readonly fields: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
  /** Trailers of a gRPC response; undefined if there are none. */
  readonly trailers?: Readonly<Record<string, string>>;
}

/**
 * Codes of the answers: as numbers for gRPC (code.proto), and as HTTP statuses for Connect
 * (connectrpc.com/docs/protocol).
 */
const CODES = {
  invalid_argument: [3, 400],
  resource_exhausted: [8, 429],
  unimplemented: [12, 501],
  internal: [13, 500],
} as const;

/** Thrown to refuse a request. The answer to the client contains its code and its message. */
class Refusal extends Error {
  readonly code: keyof typeof CODES;

  constructor(code: keyof typeof CODES, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * Answers a request to WorkloadService in gRPC, the Connect protocol or plain JSON. Answers exactly like the router of
 * connectrpc.com, which would take 4 MB of memory.
 */
export async function answerWorkload(
  idle: Pick<IdleDeclarations, "declare">,
  request: WorkloadRequest,
): Promise<WorkloadAnswer> {
  if (request.path.split("?", 1)[0] !== DECLARE_IDLE) return { status: 404, fields: {}, body: [] };
  if (request.method !== "POST") return { status: 405, fields: {}, body: [] };
  const type = request.fields["content-type"] ?? "";
  const grpc = GRPC_TYPE.exec(type);
  if (grpc !== null) return overGrpc(idle, request, grpc[1] !== undefined);
  const unary = UNARY_TYPE.exec(type);
  if (unary !== null) return overConnect(idle, request, unary[1] !== undefined);
  return { status: 415, fields: {}, body: [] };
}

async function overGrpc(
  idle: Pick<IdleDeclarations, "declare">,
  { fields, body }: WorkloadRequest,
  isJson: boolean,
): Promise<WorkloadAnswer> {
  const head = { status: 200, fields: { "content-type": isJson ? "application/grpc+json" : "application/grpc+proto" } };
  try {
    refuseEncoding(fields["grpc-encoding"]);
    refuseTimeout("grpc", GRPC_TIMEOUT, fields["grpc-timeout"]);
    await checkMessages(body, isJson);
    return { ...head, body: response(idle, isJson), trailers: { "grpc-status": "0" } };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const trailers = {
      "grpc-message": encodeURIComponent(error.message.toWellFormed()),
      "grpc-status": String(CODES[error.code][0]),
    };
    return { ...head, body: [], trailers };
  }
}

async function overConnect(
  idle: Pick<IdleDeclarations, "declare">,
  { fields, body }: WorkloadRequest,
  isJson: boolean,
): Promise<WorkloadAnswer> {
  let status = 200;
  let type = isJson ? "application/json" : "application/proto";
  let answer: Uint8Array;
  try {
    refuseEncoding(fields["content-encoding"]);
    refuseTimeout("connect", CONNECT_TIMEOUT, fields["connect-timeout-ms"]);
    if (body.length > MESSAGE_LIMIT_BYTES) throw tooLarge(fields["content-length"]);
    await check(body, isJson);
    answer = (response(idle, isJson)[0] as Uint8Array).subarray(PREFIX_BYTES);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    status = CODES[error.code][1];
    type = "application/json";
    answer = Buffer.from(JSON.stringify({ code: error.code, message: error.message }));
  }
  return { status, fields: { "content-length": String(answer.length), "content-type": type }, body: [answer] };
}

function refuseEncoding(encoding: string | undefined): void {
  if (encoding === undefined || encoding === "identity") return;
  throw new Refusal("unimplemented", `unknown compression "${encoding}": supported encodings are `);
}

/** Checks the format of a timeout, but does not enforce the timeout, because the call takes very little time. */
function refuseTimeout(protocol: "grpc" | "connect", form: RegExp, value: string | undefined): void {
  if (value === undefined || form.test(value)) return;
  throw new Refusal("invalid_argument", `protocol error: invalid ${protocol} timeout value: ${value}`);
}

function tooLarge(sizeBytes: string | undefined): Refusal {
  const size = sizeBytes === undefined ? "" : ` ${Number(sizeBytes)}`;
  return new Refusal(
    "resource_exhausted",
    `message size${size} is larger than configured readMaxBytes ${MESSAGE_LIMIT_BYTES}`,
  );
}

/** Throws Refusal unless the body is exactly one message with its prefix. */
async function checkMessages(body: Buffer, isJson: boolean): Promise<void> {
  const messages: { readonly flags: number; readonly bytes: Buffer }[] = [];
  let at = 0;
  while (body.length - at >= PREFIX_BYTES) {
    const flags = body.readUInt8(at);
    const length = body.readUInt32BE(at + 1);
    if (length > MESSAGE_LIMIT_BYTES) throw tooLarge(String(length));
    at += PREFIX_BYTES;
    if (body.length - at < length) break;
    messages.push({ flags, bytes: body.subarray(at, at + length) });
    at += length;
  }
  for (const [index, { flags, bytes }] of messages.slice(0, 2).entries()) {
    if ((flags & IS_COMPRESSED) !== 0)
      throw new Refusal("internal", "received compressed envelope, but do not know how to decompress");
    await check(bytes, isJson);
    if (index > 0) throw new Refusal("unimplemented", "protocol error: received extra input message for unary method");
  }
  if (at < body.length) throw new Refusal("invalid_argument", "protocol error: incomplete envelope");
  if (messages.length === 0)
    throw new Refusal("unimplemented", "protocol error: missing input message for unary method");
}

/** Throws Refusal unless the bytes are a DeclareIdleRequest. */
async function check(bytes: Buffer, isJson: boolean): Promise<void> {
  if (isJson ? EMPTY_JSON.test(bytes.toString()) : bytes.length === 0) return;
  const { problemOf } = await import("./request.ts");
  const problem = problemOf(bytes, isJson);
  if (problem === undefined) return;
  throw isJson ? new Refusal("invalid_argument", problem) : new Refusal("internal", `parse binary: ${problem}`);
}

/** Records the declaration. Returns the DeclareIdleResponse with gRPC's prefix. */
function response(idle: Pick<IdleDeclarations, "declare">, isJson: boolean): Frame {
  const { seconds: exact, nanos } = timestamp(idle.declare());
  const seconds = Number(exact);
  if (!isJson) {
    const writer = new FrameWriter();
    writer.message(1, () => {
      writer.number(1, seconds);
      writer.number(2, nanos);
    });
    return writer.frame();
  }
  // Fraction of a second with 0, 3, 6 or 9 digits (google/protobuf/timestamp.proto).
  const digits = String(nanos)
    .padStart(9, "0")
    .replace(/(?:000)+$/, "");
  const time = new Date(seconds * 1000).toISOString().replace(".000Z", digits === "" ? "Z" : `.${digits}Z`);
  const text = JSON.stringify({ declaredAt: time });
  const frame = Buffer.alloc(PREFIX_BYTES + text.length);
  frame.writeUInt32BE(text.length, 1);
  frame.write(text, PREFIX_BYTES, "latin1");
  return [frame];
}
