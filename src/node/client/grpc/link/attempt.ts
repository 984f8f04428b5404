import { spawn } from "node:child_process";
import { connect as connectSocket, Socket } from "node:net";
import { Duplex } from "node:stream";
import { checkServerIdentity, connect as connectTls, type SecureContext } from "node:tls";
import { messageOf } from "../../../../shared/errors.ts";
import type { ErrorCode } from "../../errors/error-codes.ts";
import { type Cause, causeOf } from "../grpc-texts.ts";
import { HEAD_BYTES, unlikeHttp2 } from "./first-bytes.ts";

/** One address of an agent, parsed. */
export interface Endpoint {
  /** The address as the caller wrote it. */
  readonly address: string;
  /** A TCP port, a unix socket, or a program that connects its standard input and output to the agent. */
  readonly to:
    | { readonly host: string; readonly port: number }
    | { readonly path: string }
    | { readonly command: readonly [program: string, ...args: string[]] };
  /**
   * If set, the unix socket belongs to a VMM (Firecracker, Cloud Hypervisor), and a CONNECT line must ask the VMM for
   * this vsock port first.
   */
  readonly vsockPort?: number | undefined;
  /** TLS settings; undefined for a connection without TLS. */
  readonly tls?: { readonly context: SecureContext; readonly serverName: string } | undefined;
}

/** Thrown when the attempt to connect to an endpoint fails. */
export class AttemptError extends Error {
  override readonly name = "AttemptError";
  readonly reason: Cause;

  constructor(reason: Cause) {
    super(reason.message);
    this.reason = reason;
  }
}

/**
 * The bytes that grpc-js sends before the server answers. They are kept, because if one endpoint fails, they must be
 * sent to the next endpoint, too.
 */
export interface Preface {
  /** All bytes that have been sent so far. */
  readonly sent: readonly Buffer[];
  /** Receives the bytes that are sent later; replaces the receiver of the previous attempt. */
  receiver: ((bytes: Buffer) => void) | undefined;
  /** The step that the current attempt is waiting for. It is reported as the cause if the attempt fails now. */
  waitsFor: Cause;
}

/** Limit on a VMM's answer to CONNECT: `OK `, a number and a newline. */
const ANSWER_BYTES = 64;
const NEWLINE = 0x0a;
const COMPLAINT_CHARS = 300;

/**
 * Connects to an endpoint, forwards the preface, and resolves with the connection as soon as its server has sent its
 * first bytes. Waiting for these bytes detects a device that accepts connections and never answers. Rejects with
 * AttemptError.
 *
 * @param limitMs time limit of the whole attempt
 */
export async function attempt(endpoint: Endpoint, preface: Preface, limitMs: number): Promise<Duplex> {
  const { vsockPort, tls } = endpoint;
  const opened = open(endpoint);
  let current: Duplex = opened.stream;
  let code: ErrorCode = "ADDRESS_UNREACHABLE";
  let hint = "";
  const waitFor = (step: string, whyNot = ""): void => {
    hint = whyNot;
    preface.waitsFor = { code, message: step };
  };
  waitFor("nothing answers");
  let late: NodeJS.Timeout | undefined;
  const failed = new Promise<never>((_resolve, reject) => {
    const fail = (cause: Cause): void => reject(new AttemptError(cause));
    const end = `within ${Math.round(limitMs)} ms`;
    late = setTimeout(() => fail({ code, message: `${preface.waitsFor.message} ${end}${hint}` }), limitMs);
    opened.failed = (error) => fail(causeOf(messageOf(error)) ?? { code, message: messageOf(error) });
    opened.closed = () =>
      fail({ code: "CONNECTION_CLOSED", message: `${preface.waitsFor.message}: the connection was closed` });
  });
  failed.catch(() => undefined);
  try {
    await Promise.race([opened.connected, failed]);
    if (vsockPort !== undefined) {
      waitFor(`the VMM does not answer CONNECT ${vsockPort}`, "; the guest may not listen on that vsock port");
      await Promise.race([askForPort(current, vsockPort), failed]);
    }
    code = "AGENT_SILENT";
    if (tls !== undefined) {
      waitFor("it accepts the connection but does not do a TLS handshake");
      const secure = connectTls({
        socket: current,
        secureContext: tls.context,
        servername: tls.serverName,
        ALPNProtocols: ["h2"],
        checkServerIdentity: (_host, certificate) => checkServerIdentity(tls.serverName, certificate),
      });
      secure.on("error", (error) => opened.failed(error));
      await Promise.race([new Promise((resolve) => secure.once("secureConnect", resolve)), failed]);
      current = secure;
    }
    waitFor("it accepts the connection but does not speak HTTP/2");
    for (const bytes of preface.sent) current.write(bytes);
    preface.receiver = (bytes) => current.write(bytes);
    const first = await Promise.race([firstBytes(current), failed]);
    const said = unlikeHttp2(first);
    if (said !== undefined)
      throw new AttemptError({ code: "NOT_AN_AGENT", message: `it does not speak HTTP/2: it sent ${said}` });
    // If the stream has ended without any bytes, "readable" was emitted as well. In this case, wait for the reason of
    // the end.
    if (first.length === 0) await failed;
    return current;
  } catch (error) {
    current.destroy();
    opened.stream.destroy();
    throw error;
  } finally {
    clearTimeout(late);
    preface.receiver = undefined;
    opened.failed = () => undefined;
    opened.closed = () => undefined;
  }
}

/**
 * Reads the first bytes that a server sends: as many as are necessary to decide whether it speaks HTTP/2, or fewer if
 * the stream ends before. Puts the bytes back into the stream.
 */
async function firstBytes(stream: Duplex): Promise<Buffer> {
  let bytes: Buffer = Buffer.alloc(0);
  while (bytes.length < HEAD_BYTES && !stream.readableEnded) {
    await new Promise((resolve) => stream.once("readable", resolve));
    const more = stream.read() as Buffer | null;
    if (more === null) break;
    bytes = Buffer.concat([bytes, more]);
  }
  if (bytes.length > 0) stream.unshift(bytes);
  return bytes;
}

interface Opened {
  readonly stream: Duplex;
  readonly connected: Promise<unknown>;
  failed: (error: unknown) => void;
  closed: () => void;
}

/**
 * Opens the connection. Its socket or program is unreferenced, so that an idle connection does not keep this process
 * alive; a call in progress does.
 */
function open({ to }: Endpoint): Opened {
  if ("command" in to) return openCommand(to.command);
  const socket = connectSocket({ ...to, allowHalfOpen: true, noDelay: true });
  socket.unref();
  const connected = new Promise((resolve) => socket.once("connect", resolve));
  return followed(socket, connected);
}

function followed(stream: Duplex, connected: Promise<unknown>): Opened {
  const opened: Opened = { stream, connected, failed: () => undefined, closed: () => undefined };
  stream.on("error", (error) => opened.failed(error));
  stream.once("end", () => opened.closed());
  stream.once("close", () => opened.closed());
  return opened;
}

function openCommand([program, ...args]: readonly [string, ...string[]]): Opened {
  const child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"] });
  child.unref();
  for (const stream of [child.stdin, child.stdout, child.stderr]) if (stream instanceof Socket) stream.unref();
  const stream = new Duplex({
    read: () => void child.stdout.resume(),
    write: (bytes: Buffer, _encoding, done) => void child.stdin.write(bytes, done),
    final: (done) => void child.stdin.end(done),
    destroy: (error, done) => {
      child.kill();
      done(error);
    },
  });
  const opened = followed(stream, Promise.resolve());
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-COMPLAINT_CHARS);
  });
  // A broken pipe means that the program has ended. Its exit explains why, so ignore this error.
  child.stdin.on("error", () => undefined);
  child.stdout.on("data", (bytes: Buffer) => {
    if (!stream.push(bytes)) child.stdout.pause();
  });
  child.once("error", (error) => opened.failed(new Error(`${program} cannot be started: ${error.message}`)));
  child.once("close", () => {
    if (complaint !== "") opened.failed(new Error(`${program} failed: ${complaint.trim()}`));
    stream.push(null);
  });
  return opened;
}

/**
 * Performs the CONNECT handshake of Firecracker and Cloud Hypervisor. Bytes after the VMM's answer line belong to the
 * agent and stay in the stream.
 */
function askForPort(stream: Duplex, port: number): Promise<void> {
  stream.write(`CONNECT ${port}\n`);
  let answer = Buffer.alloc(0);
  return new Promise((resolve, reject) => {
    const read = (): void => {
      const bytes = stream.read() as Buffer | null;
      if (bytes === null) return;
      answer = Buffer.concat([answer, bytes]);
      const end = answer.indexOf(NEWLINE);
      if (end < 0 && answer.length <= ANSWER_BYTES) return;
      stream.off("readable", read);
      const line = answer.toString("latin1", 0, end < 0 ? ANSWER_BYTES : end).trimEnd();
      if (!/^OK \d+$/.test(line)) {
        const message = `the VMM answered CONNECT ${port} with ${JSON.stringify(line)} instead of OK`;
        reject(new AttemptError({ code: "NOT_AN_AGENT", message }));
        return;
      }
      if (answer.length > end + 1) stream.unshift(answer.subarray(end + 1));
      resolve();
    };
    stream.on("readable", read);
  });
}
