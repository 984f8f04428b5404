import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type Duplex, duplexPair } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { connect, createServer, type TLSSocket } from "node:tls";
import { create, type DescMessage, type DescMethod, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { type Clock, SILENT_LOG, type TlsMaterial, within } from "../domain/index.ts";
import { GuestAgent } from "../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { type ClientRequest, MemoryClient } from "../http2/index.ts";
import type { PeerCertificate } from "../listening/index.ts";
import { messageFrame, type Router } from "../rpc/index.ts";
import { ManagementServer } from "./management.ts";
import { described, peerCertificate, tlsOptions } from "./tls.ts";

/** The warm-up ends after this time, whatever goes wrong. */
const LIMIT_MS = 5_000;
/** How long its streams may take to close: PRE_SNAPSHOT's answer waits for it. */
const CLOSE_LIMIT_MS = 1_000;

const HEALTH: ClientRequest = request(GuestAgent.method.health, {});

/** What a node calls after a restore, for a router that starts no command and whose duties change nothing. */
function rehearsedCalls(): readonly ClientRequest[] {
  const { exec, runRestoreDuties } = GuestAgent.method;
  const start = { args: ["true"], env: { LANG: "C" } };
  return [
    HEALTH,
    request(exec, { frame: { case: "start", value: start } }),
    request(runRestoreDuties, { entropy: randomBytes(32), hostTime: timestampNow() }),
  ];
}

/** A call with one message. A client that streams could send more. */
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

/** The server of a warm-up: that of the agent, but without a listener, and it logs nothing. */
export function serverInMemory(router: Router, clock: Clock): ManagementServer {
  return new ManagementServer({ router, clock, log: SILENT_LOG, authenticate: () => undefined });
}

/**
 * Loads and runs once what a first connection and its first calls need, so that no client waits for it. Makes a TLS
 * handshake (if `tls` is given) and a Health over streams in memory. Nothing is logged, and Health is no activity. The
 * client's side shows no certificate, and trusts any. Resolves when it is over, well or not: within five seconds, or
 * `limitMs`, and the second that its streams may take to close.
 *
 * @param server of this warm-up alone (`serverInMemory`); for a rehearsal of the first calls after a restore one that
 *   starts no command, and whose duties change nothing
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
  // Cleared at the end: it would wake an agent that has just been restored.
  const timer = setTimeout(() => limit.abort(), limitMs).unref();
  const open: Duplex[] = [near, far, other, others];
  try {
    const hands = tls && (await shakeHands(near, far, tls, signal));
    const { server: socket, client } = hands ?? { server: near, client: far };
    open.push(socket, client);
    server.serveInMemory(near, hands);
    if (isRehearsal) {
      // Duties end every other connection.
      server.serveInMemory(other);
      await new Promise<void>((resolve) => others.end(resolve));
    }
    await new MemoryClient(client).send(isRehearsal ? rehearsedCalls() : [HEALTH], signal);
  } catch {
    // The first client then waits as long as without a warm-up.
  } finally {
    clearTimeout(timer);
    await within(Promise.all(open.map((stream) => ended(stream))), CLOSE_LIMIT_MS);
    // Node ends TLS in a later tick.
    if (isRehearsal) await delay(1);
  }
}

/** Nothing of it is left to run, after a snapshot for instance. */
function ended(stream: Duplex): Promise<unknown> {
  return stream.closed ? Promise.resolve() : new Promise((resolve) => stream.once("close", resolve).destroy());
}

/** Returns both sides, and the server's own certificate. */
async function shakeHands(
  near: Duplex,
  far: Duplex,
  { cert, key, clientCa }: TlsMaterial,
  signal: AbortSignal,
): Promise<{ server: TLSSocket; client: TLSSocket; certificate: PeerCertificate | undefined }> {
  // Without a certificate of the client: the agent has none of its authority's.
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
