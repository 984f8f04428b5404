import { once } from "node:events";
import { addAbortSignal, type Duplex, duplexPair } from "node:stream";
import { connect, createServer, type TLSSocket } from "node:tls";
import { type Clock, type TlsMaterial, within } from "../domain/index.ts";
import { GuestAgent } from "../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { Http2Connection, Pace } from "../http2/index.ts";
import type { Connection } from "../listening/index.ts";
import type { Router } from "../rpc/index.ts";
import { DEFAULT_SERVER_LIMITS } from "./management.ts";
import { described, peerCertificate, tlsOptions } from "./tls.ts";

/** The warm-up ends after this time, whatever goes wrong. */
const LIMIT_MS = 5_000;
/** How long its streams may take to close: PRE_SNAPSHOT's answer waits for it. */
const CLOSE_LIMIT_MS = 1_000;

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");
const REQUEST_FIELDS = {
  ":method": "POST",
  ":scheme": "https",
  ":path": `/${GuestAgent.typeName}/${GuestAgent.method.health.name}`,
  ":authority": "agent",
  "content-type": "application/grpc",
  te: "trailers",
};
/** HEADERS with END_HEADERS and DATA with END_STREAM (RFC 9113, 6), both of stream 1. */
const HEADERS_HEAD = "\x01\x04\0\0\0\x01";
/** The head of the HEADERS that end the answer, behind its length. */
const TRAILERS = "\x01\x05\0\0\0\x01";
const EMPTY_MESSAGE = Buffer.from("\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0", "latin1");

/**
 * Loads and runs once what a first connection and its first call need, so that no client waits for it. Makes a TLS
 * handshake (if `tls` is given) and a Health, over streams in memory. No listener knows of it, nothing is logged, and
 * Health is no activity. The client's side shows no certificate, and trusts any. Resolves when it is over, well or not:
 * within five seconds, or `limitMs`, and the second that its streams may take to close.
 */
export async function warmUp(
  router: Router,
  clock: Clock,
  tls: TlsMaterial | undefined,
  limitMs: number = LIMIT_MS,
): Promise<void> {
  const [near, far] = duplexPair();
  for (const stream of [near, far]) stream.on("error", () => {});
  const limit = new AbortController();
  const { signal } = limit;
  // Cleared at the end: it would wake an agent that has just been restored.
  const timer = setTimeout(() => limit.abort(), limitMs).unref();
  const open: Duplex[] = [near, far];
  try {
    const [server, client] = tls === undefined ? open : await shakeHands(near, far, tls, signal);
    if (server === undefined || client === undefined) return;
    open.push(server, client);
    serve(server, router, clock);
    client.write(Buffer.concat([PREFACE, headers(), EMPTY_MESSAGE]));
    let answer = "";
    for await (const bytes of addAbortSignal(signal, client)) {
      answer += (bytes as Buffer).toString("latin1");
      if (answer.includes(TRAILERS)) break;
    }
  } catch {
    // The first client then waits as long as without a warm-up.
  } finally {
    clearTimeout(timer);
    await within(Promise.all(open.map((stream) => ended(stream))), CLOSE_LIMIT_MS);
  }
}

/** Nothing of it is left to run, after a snapshot for instance. */
function ended(stream: Duplex): Promise<unknown> {
  return stream.closed ? Promise.resolve() : new Promise((resolve) => stream.once("close", resolve).destroy());
}

/** Returns the server's side and the client's. */
async function shakeHands(
  near: Duplex,
  far: Duplex,
  { cert, key, clientCa }: TlsMaterial,
  signal: AbortSignal,
): Promise<[TLSSocket, TLSSocket]> {
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
  const certificate = client.getPeerX509Certificate();
  if (certificate !== undefined) described(certificate, client);
  return [socket, client];
}

/** Like the listener, but without counting the connection. */
function serve(socket: Duplex, router: Router, clock: Clock): void {
  const caller: Connection = { id: 0, peer: { address: "memory", certificate: undefined } };
  const { unprovenBytes, unprovenReads } = DEFAULT_SERVER_LIMITS;
  const ignore = (): void => {};
  const connection = new Http2Connection(
    socket,
    socket,
    {
      ...DEFAULT_SERVER_LIMITS,
      firstRequestMs: LIMIT_MS,
      probation: { pace: new Pace(), bytes: unprovenBytes, reads: unprovenReads },
    },
    {
      request: (stream, fields) =>
        router.handle(stream, fields, caller, () => {
          connection.prove();
          return undefined;
        }),
      failed: ignore,
      peerDead: ignore,
      closing: ignore,
      gone: ignore,
    },
    () => clock.monotonicMs(),
  );
  connection.serve();
}

/** Each field as a literal that no table keeps (RFC 7541, 6.2.2). */
function headers(): Buffer {
  const text = (value: string): string => String.fromCharCode(value.length) + value;
  const block = Object.entries(REQUEST_FIELDS).map(([name, value]) => `\0${text(name)}${text(value)}`);
  const bytes = block.join("");
  return Buffer.from(`\0\0${String.fromCharCode(bytes.length)}${HEADERS_HEAD}${bytes}`, "latin1");
}
