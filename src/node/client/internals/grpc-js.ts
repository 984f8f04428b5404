import type { ClientHttp2Session, ClientHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { type ChannelCredentials, type Client, connectivityState } from "@grpc/grpc-js";

/** Where grpc-js keeps its connections, which it shows to nobody. */
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

/** The pool is the client's own (grpc.use_local_subchannel_pool). */
function subchannelsOf(client: Client): Subchannel[] {
  const { pool } = (client.getChannel() as unknown as WithConnections).internalChannel.subchannelPool;
  return Object.values(pool)
    .flat()
    .map(({ subchannel }) => subchannel);
}

/** The connections that take calls. */
export function connectionsOf(client: Client): ClientHttp2Session[] {
  return subchannelsOf(client).flatMap(({ transport }) => (transport === null ? [] : [transport.session]));
}

/** Fails the attempts to connect, and the calls that wait for them. Otherwise grpc-js would make no other attempt. */
export function abandonConnecting(client: Client, message: string): void {
  for (const subchannel of subchannelsOf(client))
    subchannel.transitionToState([connectivityState.CONNECTING], connectivityState.TRANSIENT_FAILURE, message);
}

/** Makes credentials tell of each socket on which a connection is being made. */
export function tellingSockets(credentials: ChannelCredentials, tell: (socket: Socket) => void): ChannelCredentials {
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

/** A call, or a part between it and its stream. */
type Part = { readonly [Name in "call" | "nextCall" | "child"]?: Part } & {
  readonly underlyingCalls?: readonly { readonly call: Part }[];
  readonly http2Stream?: ClientHttp2Stream;
};

/** The HTTP/2 stream of a call whose headers have come. Undefined where another version of grpc-js keeps it elsewhere. */
export function streamOf(call: unknown): ClientHttp2Stream | undefined {
  for (let part = call as Part | undefined; part !== undefined;) {
    if (part.http2Stream !== undefined) return part.http2Stream;
    part = part.call ?? part.nextCall ?? part.child ?? part.underlyingCalls?.at(-1)?.call;
  }
  return undefined;
}
