import { connect as connectSocket } from "node:net";
import { Duplex } from "node:stream";
import { errnoOf, messageOf } from "../../../../shared/errors.ts";
import type { ErrorCode } from "../../errors/error-codes.ts";
import { deferred } from "../../deferred.ts";
import { type Cause, causeOf } from "../grpc-texts.ts";
import { endChild, startChild } from "./child.ts";
import { type Endpoint, startTls } from "./endpoint.ts";
import { firstBytes, HEAD_BYTES, quotedLine, unlikeHttp2 } from "./first-bytes.ts";

/** Thrown when the attempt to connect to an endpoint fails. */
export class AttemptError extends Error {
  override readonly name = "AttemptError";
  readonly reason: Cause;

  constructor(reason: Cause) {
    super(reason.message);
    this.reason = reason;
  }
}

/** Limit on the bytes of a VMM's answer to CONNECT, which is `OK `, a number and a newline. */
const ANSWER_BYTES = 64;
const NEWLINE = 0x0a;
const COMPLAINT_CHARS = 300;

/**
 * Connects to an endpoint, sends the client's preface, and resolves with the connection as soon as its server has sent
 * its first bytes. Waiting for these bytes detects a device that accepts connections and never answers. Rejects with
 * AttemptError.
 *
 * @param limitMs time limit of the whole attempt
 * @param onStep called before each step, with the cause to report if the attempt hangs in that step
 */
export async function attempt(
  endpoint: Endpoint,
  preface: Buffer,
  limitMs: number,
  onStep: (step: Cause) => void,
): Promise<Duplex> {
  const { vsockPort, tls } = endpoint;
  const { promise: failed, reject } = deferred<never>();
  // Mark this rejection as handled, because it may happen while nothing awaits the promise.
  failed.catch(() => undefined);
  let code: ErrorCode = "ADDRESS_UNREACHABLE";
  let step = "";
  let hint = "";
  const waitFor = <Value>(what: string, done: Promise<Value>, whyNot = ""): Promise<Value> => {
    [step, hint] = [what, whyNot];
    onStep({ code, message: step });
    return Promise.race([done, failed]);
  };
  const fail = (cause: Cause): void => reject(new AttemptError(cause));
  const broken = (error: unknown): void => fail(causeOf(messageOf(error)) ?? { code, message: messageOf(error) });
  const closed = (): void => fail({ code: "CONNECTION_CLOSED", message: `${step}: the connection was closed` });
  const watch = (watched: Duplex): Duplex => watched.on("error", broken).once("end", closed).once("close", closed);
  const { stream, connected } = open(endpoint, broken);
  let current = watch(stream);
  // A bridge command does not report whether it has reached the agent. So for a bridge command, the message names both
  // possibilities.
  const accepts = "command" in endpoint.to ? "nothing answers, or it" : "it accepts the connection but";
  const late = setTimeout(() => {
    fail({ code, message: `${step} within ${Math.round(limitMs)} ms${hint}` });
  }, limitMs);
  try {
    await waitFor("nothing answers", connected);
    if (vsockPort !== undefined) {
      const silent = `the VMM does not answer CONNECT ${vsockPort}`;
      await waitFor(silent, askForPort(stream, vsockPort), "; perhaps nothing in the guest listens on that vsock port");
    }
    code = "AGENT_SILENT";
    if (tls !== undefined) {
      const secure = startTls(stream, tls);
      current = watch(secure);
      const done = new Promise((resolve) => secure.once("secureConnect", resolve));
      await waitFor(`${accepts} does not do a TLS handshake`, done);
    }
    current.write(preface);
    const first = await waitFor(`${accepts} does not speak HTTP/2`, firstBytes(current, HEAD_BYTES));
    const said = unlikeHttp2(first);
    if (said !== undefined) fail({ code: "NOT_AN_AGENT", message: `it does not speak HTTP/2: it sent ${said}` });
    // If the stream has ended without any bytes, wait for the reason of the end.
    if (said !== undefined || first.length === 0) await failed;
    current.unshift(first);
    return current;
  } catch (error) {
    current.destroy();
    stream.destroy();
    throw error;
  } finally {
    clearTimeout(late);
  }
}

interface Opened {
  readonly stream: Duplex;
  readonly connected: Promise<unknown>;
}

/**
 * Opens the connection. Its socket or program is unreferenced, so that an idle connection does not keep this process
 * alive; a call in progress does.
 */
function open({ to }: Endpoint, failed: (error: Error) => void): Opened {
  if ("command" in to) return { stream: openCommand(to.command, failed), connected: Promise.resolve() };
  const socket = connectSocket({ ...to, allowHalfOpen: true, noDelay: true });
  socket.unref();
  return { stream: socket, connected: new Promise((resolve) => socket.once("connect", resolve)) };
}

/**
 * Starts a program. Calls `failed` if the program cannot be started, or when it ends after a message on standard error.
 * Throws if this process has too many open files.
 */
function openCommand([program, ...args]: readonly [string, ...string[]], failed: (error: Error) => void): Duplex {
  const child = startChild({ program, args });
  const stream = new Duplex({
    read: () => void child.stdout.resume(),
    // Ignore a failed write. It means that the program has ended, and the events below report why.
    write: (bytes: Buffer, _encoding, done) => void child.stdin.write(bytes, () => done()),
    final: (done) => void child.stdin.end(done),
    destroy: (error, done) => {
      endChild(child);
      done(error);
    },
  });
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(-COMPLAINT_CHARS);
  });
  child.stdout.on("data", (bytes: Buffer) => {
    if (!stream.push(bytes)) child.stdout.pause();
  });
  child.once("error", (error) => {
    const isMissing = errnoOf(error) === "ENOENT";
    failed(new Error(`${program} ${isMissing ? "is not installed" : `cannot be started: ${error.message}`}`));
  });
  child.once("close", () => {
    if (complaint !== "") failed(new Error(`${program} failed: ${complaint.trim()}`));
    stream.push(null);
  });
  return stream;
}

/**
 * Performs the CONNECT handshake of Firecracker and Cloud Hypervisor. Bytes after the VMM's answer line belong to the
 * agent and stay in the stream.
 */
async function askForPort(stream: Duplex, port: number): Promise<void> {
  stream.write(`CONNECT ${port}\n`);
  let answer: Buffer = Buffer.alloc(0);
  let end = -1;
  while (end < 0 && answer.length <= ANSWER_BYTES && !stream.readableEnded) {
    answer = Buffer.concat([answer, await firstBytes(stream, 1)]);
    end = answer.indexOf(NEWLINE);
  }
  if (!/^OK \d+\r?\n/.test(answer.toString("latin1", 0, ANSWER_BYTES))) {
    const message = `the VMM answered CONNECT ${port} with ${quotedLine(answer)} instead of OK`;
    throw new AttemptError({ code: "NOT_AN_AGENT", message });
  }
  if (answer.length > end + 1) stream.unshift(answer.subarray(end + 1));
}
