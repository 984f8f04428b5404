import type { ClientHttp2Session, ClientHttp2Stream } from "node:http2";
import type { Client } from "@grpc/grpc-js";

/** Where grpc-js keeps its connections, which it shows to nobody. */
interface WithConnections {
  readonly internalChannel: {
    readonly subchannelPool: {
      readonly pool: Readonly<
        Record<
          string,
          readonly { readonly subchannel: { readonly transport: { readonly session: ClientHttp2Session } | null } }[]
        >
      >;
    };
  };
}

/** The connections that take calls. The pool is the client's own (grpc.use_local_subchannel_pool). */
export function connectionsOf(client: Client): ClientHttp2Session[] {
  const { pool } = (client.getChannel() as unknown as WithConnections).internalChannel.subchannelPool;
  return Object.values(pool)
    .flat()
    .flatMap(({ subchannel: { transport } }) => (transport === null ? [] : [transport.session]));
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
