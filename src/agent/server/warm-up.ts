import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type Duplex, duplexPair } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { connect, createServer, type TLSSocket } from "node:tls";
import { create, type DescMessage, type DescMethod, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { clearUnreferenced, type Clock, SILENT_LOG, type TlsMaterial, within } from "../domain/index.ts";
import { GuestAgent } from "../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type ClientRequest, MemoryClient } from "../http2/index.ts";
import type { PeerCertificate } from "../listening/index.ts";
import { messageFrame, type Router } from "../rpc/index.ts";
import { ManagementServer } from "./management.ts";
import { described, peerCertificate, tlsOptions } from "./tls.ts";

/** Longest time that the whole warm-up may take, even if one of its calls hangs. */
const LIMIT_MS = 5_000;
/** Limit for closing the streams after the warm-up. RunHook with PRE_SNAPSHOT waits for this before it answers. */
const CLOSE_LIMIT_MS = 1_000;

const HEALTH: ClientRequest = request(GuestAgent.method.health, {});

/**
 * The calls that a node agent makes after a restore. The router that answers them here must not start commands or run
 * real restore steps.
 */
function rehearsedCalls(): readonly ClientRequest[] {
  const { exec, runRestoreDuties } = GuestAgent.method;
  const start = { args: ["true"], env: { LANG: "C" } };
  return [
    HEALTH,
    request(exec, { frame: { case: "start", value: start } }),
    request(runRestoreDuties, { entropy: randomBytes(32), hostTime: timestampNow() }),
  ];
}

/** The request of a call, with one message. A client stream stays open after this message. */
function request<Input extends DescMessage>(
  { name, input, methodKind }: DescMethod & { readonly input: Input },
  message: MessageInitShape<Input>,
): ClientRequest {
  return {
    fields: {
      ":method": "POST",
      ":scheme": "https",
      ":path": `/${GuestAgent.typeName}/${name}`,
      ":authority": "agent",
      "content-type": "application/grpc",
      te: "trailers",
      "grpc-timeout": "60S",
    },
    body: Buffer.concat(messageFrame(input, create(input, message))),
    isOpen: methodKind === "bidi_streaming",
  };
}

/** The server for a warm-up: like the agent's, but it has no listener and logs nothing. */
export function serverInMemory(router: Router, clock: Clock): ManagementServer {
  return new ManagementServer({ router, clock, log: SILENT_LOG, authenticate: () => undefined });
}

/**
 * Loads the code for a connection and its first calls, so that the first client does not have to wait for this. To load
 * it, makes a TLS handshake (if `tls` is given) and a call of Health over in-memory streams. With `isRehearsal`, makes
 * the calls of a restore instead of Health. Never rejects. Resolves within five seconds (or `limitMs`), plus at most a
 * second for closing the streams.
 *
 * @param server serves only this warm-up (see `serverInMemory`). In a rehearsal, its router must not start commands or
 *   run real restore steps.
 */
export async function warmUp(
  server: ManagementServer,
  tls: TlsMaterial | undefined,
  { isRehearsal = false, limitMs = LIMIT_MS }: { readonly isRehearsal?: boolean; readonly limitMs?: number } = {},
): Promise<void> {
  const [near, far] = duplexPair();
  const [other, others] = duplexPair();
  for (const stream of [near, far]) stream.on("error", () => {});
  const limit = new AbortController();
  const { signal } = limit;
  // The timer is cleared at the end, because otherwise it would wake an agent that has just been restored.
  const timer = setTimeout(() => limit.abort(), limitMs).unref();
  const open: Duplex[] = [near, far, other, others];
  try {
    const handshake = tls && (await makeHandshake(near, far, tls, signal));
    const { server: socket, client } = handshake ?? { server: near, client: far };
    open.push(socket, client);
    server.serveInMemory(near, handshake);
    if (isRehearsal) {
      // A restore ends all connections except the one that called it. The rehearsal opens a second connection, so that
      // the code that ends connections runs, too.
      server.serveInMemory(other);
      await new Promise<void>((resolve) => others.end(resolve));
    }
    await new MemoryClient(client).send(isRehearsal ? rehearsedCalls() : [HEALTH], signal);
  } catch {
    // Errors are ignored: if the warm-up fails, the first client only has to wait longer.
  } finally {
    clearUnreferenced(timer);
    await within(Promise.all(open.map((stream) => ended(stream))), CLOSE_LIMIT_MS);
    // Node finishes closing TLS in a later tick.
    if (isRehearsal) await delay(1);
  }
}

/**
 * Destroys the stream and waits until it is closed. Otherwise some work for the stream could still be pending when the
 * snapshot is taken.
 */
function ended(stream: Duplex): Promise<unknown> {
  return stream.closed ? Promise.resolve() : new Promise((resolve) => stream.once("close", resolve).destroy());
}

/**
 * Makes a TLS handshake between two in-memory streams. Returns the TLS sockets of both sides, and the server's own
 * certificate.
 */
async function makeHandshake(
  near: Duplex,
  far: Duplex,
  { cert, key, clientCa }: TlsMaterial,
  signal: AbortSignal,
): Promise<{ server: TLSSocket; client: TLSSocket; certificate: PeerCertificate | undefined }> {
  // The agent has no client certificate of the configured CA. So the client side of this rehearsed handshake sends none,
  // and its server side does not require one.
  const server = createServer({ ...tlsOptions({ cert, key, clientCa }, LIMIT_MS), rejectUnauthorized: false });
  server.emit("connection", near);
  const client = connect({ socket: far, rejectUnauthorized: false, ALPNProtocols: ["h2"] });
  client.on("error", () => {});
  const [[socket]] = (await Promise.all([
    once(server, "secureConnection", { signal }),
    once(client, "secureConnect", { signal }),
  ])) as [[TLSSocket], unknown];
  peerCertificate(socket);
  server.close();
  const certificate = client.getPeerX509Certificate();
  return { server: socket, client, certificate: certificate && described(certificate, client) };
}
