import type { Identity } from "../../fixtures/certificates.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import type { Guest } from "./guest.ts";
import type { Machine } from "./machine.ts";

/** Of a client that has no certificate. */
export const NOBODY: Identity = { cert: "", key: "" };

/** One connection to a machine's agent, which never reconnects. Default identity: the node's own. */
export function rawConnection({ certificates }: Guest, machine: Machine, client?: Identity): Promise<RawHttp2> {
  return RawHttp2.dial({ port: machine.agentPort, certificates: { ...certificates, ...(client && { client }) } });
}

/** The gRPC status of Health over a connection; undefined: it is dead. */
export async function rawHealth(peer: RawHttp2, token?: string): Promise<string | undefined> {
  const fields = peer.status(peer.call("Health", token, Buffer.alloc(0)));
  return fields.then(
    (got) => got.get("grpc-status"),
    () => undefined,
  );
}
