import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { addAbortSignal, type Duplex, duplexPair } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { connect, createServer, type TLSSocket } from "node:tls";
import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { type Clock, SILENT_LOG, type TlsMaterial, within } from "../domain/index.ts";
import { GuestAgent } from "../../shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import type { PeerCertificate } from "../listening/index.ts";
import { messageFrame, type Router } from "../rpc/index.ts";
import { ManagementServer } from "./management.ts";
import { described, peerCertificate, tlsOptions } from "./tls.ts";

/** The warm-up ends after this time, whatever goes wrong. */
const LIMIT_MS = 5_000;
/** How long its streams may take to close: PRE_SNAPSHOT's answer waits for it. */
const CLOSE_LIMIT_MS = 1_000;

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/** Heads of frames (RFC 9113, 4.1): type, flags and stream, those of stream 0 with their length in front. */
const HEADERS = "\x01\x04\0\0\0";
const DATA = "\0\0\0\0\0";
const LAST_DATA = "\0\x01\0\0\0";
const LAST_HEADERS = "\x01\x05\0\0\0";
/** Answers to the two PINGs by which the agent ends a connection (`Http2Connection.drain`). */
const PING_ANSWERS = ["\x01", "\x02"].map((number) => `\0\0\x08\x06\x01${"\0".repeat(11)}${number}`).join("");
const EMPTY_MESSAGE = "\0\0\0\0\0";

/** Bytes of a request. */
interface WarmUpCall {
  readonly method: string;
  /** With its prefix. */
  readonly message: string;
  /** More messages could follow. */
  readonly isOpen?: boolean;
}

const HEALTH: WarmUpCall = { method: GuestAgent.method.health.name, message: EMPTY_MESSAGE };

/** What a node calls after a restore, for a router that starts no command and whose duties change nothing. */
function rehearsedCalls(): readonly WarmUpCall[] {
  const encoded = <Desc extends DescMessage>(schema: Desc, message: MessageInitShape<Desc>): string =>
    Buffer.concat(messageFrame(schema, create(schema, message))).toString("latin1");
  const start = { args: ["true"], env: { LANG: "C" } };
  const { exec, runRestoreDuties } = GuestAgent.method;
  const duties = { entropy: randomBytes(32), hostTime: timestampNow() };
  return [
    HEALTH,
    { method: exec.name, message: encoded(exec.input, { frame: { case: "start", value: start } }), isOpen: true },
    { method: runRestoreDuties.name, message: encoded(runRestoreDuties.input, duties) },
  ];
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
    await ask(client, isRehearsal ? rehearsedCalls() : [HEALTH], signal);
  } catch {
    // The first client then waits as long as without a warm-up.
  } finally {
    clearTimeout(timer);
    await within(Promise.all(open.map((stream) => ended(stream))), CLOSE_LIMIT_MS);
    // Node ends TLS in a later tick.
    if (isRehearsal) await delay(1);
  }
}

/** Makes the calls. Resolves when all are answered, and the connection has ended. */
async function ask(client: Duplex, calls: readonly WarmUpCall[], signal: AbortSignal): Promise<void> {
  client.write(PREFACE + calls.map((call, n) => request(call, String.fromCharCode(2 * n + 1))).join(""), "latin1");
  const ends = calls.map((_, n) => LAST_HEADERS + String.fromCharCode(2 * n + 1));
  let answer = "";
  for await (const bytes of addAbortSignal(signal, client).iterator({ destroyOnReturn: false })) {
    answer += (bytes as Buffer).toString("latin1");
    if (client.writable && ends.every((end) => answer.includes(end))) client.end(PING_ANSWERS, "latin1");
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

/** HEADERS and DATA. Each field is a literal that no table keeps (RFC 7541, 6.2.2). */
function request({ method, message, isOpen = false }: WarmUpCall, stream: string): string {
  const text = (value: string): string => String.fromCharCode(value.length) + value;
  const frame = (bytes: string, head: string): string =>
    `\0\0${String.fromCharCode(bytes.length)}${head}${stream}${bytes}`;
  const fields = {
    ":method": "POST",
    ":scheme": "https",
    ":path": `/${GuestAgent.typeName}/${method}`,
    ":authority": "agent",
    "content-type": "application/grpc",
    te: "trailers",
    "grpc-timeout": "60S",
  };
  const block = Object.entries(fields).map(([name, value]) => `\0${text(name)}${text(value)}`);
  return frame(block.join(""), HEADERS) + frame(message, isOpen ? DATA : LAST_DATA);
}
