import { X509Certificate } from "node:crypto";
import type { ClientHttp2Session, ClientHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { createSecureContext, type SecureContext, type TLSSocket } from "node:tls";
import { ChannelCredentials, type Client, connectivityState } from "@grpc/grpc-js";

/** The private fields in which grpc-js keeps its connections. */
interface WithConnections {
  readonly internalChannel: {
    readonly subchannelPool: {
      readonly pool: Readonly<Record<string, readonly { readonly subchannel: Subchannel }[]>>;
    };
  };
}

interface Subchannel {
  readonly transport: { readonly session: ClientHttp2Session } | null;
  transitionToState(from: readonly connectivityState[], to: connectivityState, message: string): boolean;
}

/**
 * Returns the client's subchannels. The pool contains no other subchannels, because clients do not share it
 * (grpc.use_local_subchannel_pool).
 */
function subchannelsOf(client: Client): Subchannel[] {
  const { pool } = (client.getChannel() as unknown as WithConnections).internalChannel.subchannelPool;
  return Object.values(pool)
    .flat()
    .map(({ subchannel }) => subchannel);
}

/** The client's connections that accept new calls. */
export function connectionsOf(client: Client): ClientHttp2Session[] {
  return subchannelsOf(client).flatMap(({ transport }) => (transport === null ? [] : [transport.session]));
}

/**
 * Makes the connection attempts in progress fail, and also the calls that wait for these attempts. grpc-js itself would
 * wait for the attempts indefinitely and start no others.
 */
export function abandonConnecting(client: Client, message: string): void {
  for (const subchannel of subchannelsOf(client))
    subchannel.transitionToState([connectivityState.CONNECTING], connectivityState.TRANSIENT_FAILURE, message);
}

/** Changes credentials so that `tell` is called with each socket over which grpc-js begins to connect. */
export function reportingSockets(credentials: ChannelCredentials, tell: (socket: Socket) => void): ChannelCredentials {
  const make = credentials._createSecureConnector.bind(credentials);
  credentials._createSecureConnector = (...args) => {
    const connector = make(...args);
    const connect = connector.connect.bind(connector);
    connector.connect = (socket) => {
      tell(socket);
      return connect(socket);
    };
    return connector;
  };
  return credentials;
}

/** OpenSSL's context object, which Node's types do not declare. */
interface NativeContext {
  close?(): void;
}

let empty: SecureContext | undefined;

/**
 * Frees the memory of a TLS context at once, even if connections that were made with it remain. The garbage collector
 * would need 0.04 ms for each context, and would block the event loop for 100 ms with 1,000 sandboxes. The context can
 * make no further connections, because it is left without certificate and authority.
 */
export function freeContext(context: SecureContext): void {
  const native = context.context as NativeContext;
  if (typeof native.close !== "function") return;
  empty ??= createSecureContext();
  // Replace the closed context by an empty one, because Node aborts the process if it connects with a closed context.
  context.context = empty.context as unknown;
  native.close();
}

const EXPIRED = "CERT_HAS_EXPIRED";

/**
 * Creates credentials that accept an expired certificate if it has the key of a known certificate. The signature in the
 * TLS handshake (TLS 1.3, RFC 8446, 4.4.3) proves that the server has that key. Every other certificate problem is
 * still an error.
 */
export function acceptingExpired(context: SecureContext, pinnedPem: Buffer): ChannelCredentials {
  const pinned = new X509Certificate(pinnedPem);
  const credentials = ChannelCredentials.createFromSecureContext(context, { rejectUnauthorized: false });
  const make = credentials._createSecureConnector.bind(credentials);
  credentials._createSecureConnector = (...args) => {
    const connector = make(...args);
    const connect = connector.connect.bind(connector);
    connector.connect = async (raw) => {
      const made = await connect(raw);
      const socket = made.socket as TLSSocket;
      if (socket.authorized) return made;
      const problem: unknown = socket.authorizationError;
      const certificate = socket.getPeerX509Certificate();
      if (codeOf(problem) === EXPIRED && certificate !== undefined && keyOf(certificate).equals(keyOf(pinned)))
        return made;
      socket.destroy();
      const code = codeOf(problem);
      throw new Error(PROBLEMS[code] ?? `the certificate of the agent cannot be verified (${code})`);
    };
    return connector;
  };
  return credentials;
}

/**
 * Node's messages about certificate problems, by Node's error code. Node itself reports only the code, because the
 * connection is made with `rejectUnauthorized: false`.
 */
const PROBLEMS: Readonly<Record<string, string>> = {
  [EXPIRED]: "certificate has expired",
  CERT_NOT_YET_VALID: "certificate is not yet valid",
  ERR_TLS_CERT_ALTNAME_INVALID: "Hostname/IP does not match certificate's altnames",
};

function codeOf(problem: unknown): string {
  return problem instanceof Error && "code" in problem ? String(problem.code) : String(problem);
}

function keyOf({ publicKey }: X509Certificate): Buffer {
  return publicKey.export({ type: "spki", format: "der" });
}

/** A call of grpc-js, or an object inside a call. The HTTP/2 stream of a call is reached through these private fields. */
type Part = { readonly [Name in "call" | "nextCall" | "child"]?: Part } & {
  readonly underlyingCalls?: readonly { readonly call: Part }[];
  readonly http2Stream?: ClientHttp2Stream;
};

/**
 * The HTTP/2 stream of a call. Undefined until the call's first message has been sent, and also if a different version
 * of grpc-js keeps the stream elsewhere.
 */
export function streamOf(call: unknown): ClientHttp2Stream | undefined {
  for (let part = call as Part | undefined; part !== undefined;) {
    if (part.http2Stream !== undefined) return part.http2Stream;
    part = part.call ?? part.nextCall ?? part.child ?? part.underlyingCalls?.at(-1)?.call;
  }
  return undefined;
}

/**
 * Discards everything that is still written to a call after the server has ended the call's HTTP/2 stream (RST_STREAM
 * with NO_ERROR, RFC 9113, 8.1). Such writes happen, for example, if a command ends before it has read its input.
 * Without this function, Node would fail the write; grpc-js 1.14 would then replace the status OK by "Write error:
 * write after end" and drop the messages that were not read yet. Errors of writes are not needed, because the end of
 * the stream says why a call failed. Returns false, and changes nothing, if there is no stream yet, or if a different
 * version of grpc-js keeps it elsewhere.
 */
export function discardLateWrites(call: unknown): boolean {
  const stream = streamOf(call);
  if (stream === undefined) return false;
  const write = stream.write.bind(stream) as (bytes: Buffer, done: () => void) => boolean;
  const writeOrDiscard = (bytes: Buffer, done: () => void = () => undefined): boolean => {
    if (stream.writable) return write(bytes, () => done());
    setImmediate(done);
    return true;
  };
  Object.assign(stream, { write: writeOrDiscard });
  return true;
}
