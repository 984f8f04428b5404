import { once } from "node:events";
import { connect as dial } from "node:net";
import { Duplex } from "node:stream";
import { connect as connectTls } from "node:tls";
import { fromBinary } from "@bufbuild/protobuf";
import { ExecFrameSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { execStart } from "../../fixtures/raw-calls.ts";
import { FRAME } from "../../fixtures/raw-http2.ts";
import { type Guest, rawConnection } from "../harness/guest.ts";
import type { Machine } from "../harness/machine.ts";
import { ask } from "../harness/oracle.ts";
import { TOKEN } from "../harness/sandbox.ts";

const DRAW_LIMIT_MS = 90_000;
/** Of a message's envelope: a flag, and the length. */
const GRPC_HEAD_BYTES = 5;

/** A guest's draws, all in hex. */
export interface Draws {
  /** From getrandom(2), one after the other. */
  readonly kernel: readonly string[];
  /** From the vDSO's getrandom; empty if the kernel has none. */
  readonly vdso: readonly string[];
  /** Random of the agent's next ServerHello. */
  readonly tlsRandom: string;
  /** Key share of that ServerHello. */
  readonly tlsKeyShare: string;
  /** Id of the next kept command. */
  readonly execId: string;
}

/** The kernel first: everything else makes it draw as well. */
export async function drawAll(guest: Guest, machine: Machine): Promise<Draws> {
  const [kernel = "", vdso = "none"] = await ask(machine.oraclePort, ["random", "vdso"], DRAW_LIMIT_MS, DRAW_LIMIT_MS);
  const hello = await serverHello(machine.agentPort);
  return {
    kernel: kernel.split(" "),
    vdso: vdso === "none" ? [] : vdso.split(" "),
    tlsRandom: hello.random,
    tlsKeyShare: hello.keyShare,
    execId: await nextExecId(guest, machine),
  };
}

/** By a connection that never reconnects: another handshake would draw as well. */
async function nextExecId(guest: Guest, machine: Machine): Promise<string> {
  using peer = await rawConnection(guest, machine);
  const keep = { name: `draw-${performance.now()}` };
  peer.call("Exec", TOKEN, execStart({ args: ["/bin/busybox", "true"], keep }));
  const { payload } = await peer.next(({ type }) => type === FRAME.data, "the start of a command");
  const { frame } = fromBinary(ExecFrameSchema, payload.subarray(GRPC_HEAD_BYTES));
  if (frame.case !== "started") throw new Error(`a command's first frame was ${frame.case}`);
  return frame.value.execId;
}

/**
 * Whether two guests draw from the same stream: some number came to both. Perhaps at different places, as any other
 * draw in between moves a guest along the stream.
 */
export function shareNumbers(one: readonly string[], other: readonly string[]): boolean {
  const seen = new Set(one);
  return other.some((number) => seen.has(number));
}

/** Whether both guests drew the same. */
export function drawTheSame(one: Draws, other: Draws): boolean {
  return (
    shareNumbers(one.kernel, other.kernel) &&
    (one.vdso.length === 0 || shareNumbers(one.vdso, other.vdso)) &&
    one.tlsRandom === other.tlsRandom &&
    one.tlsKeyShare === other.tlsKeyShare &&
    one.execId === other.execId
  );
}

/** The random parts of a server's TLS handshake (RFC 8446, section 4.1.3). */
interface ServerHello {
  /** In hex. */
  readonly random: string;
  /** The public value of its X25519 key, in hex. */
  readonly keyShare: string;
}

const RECORD_HEADER_BYTES = 5;
const RANDOM_START = RECORD_HEADER_BYTES + 4 + 2;
const RANDOM_BYTES = 32;
const KEY_SHARE = 51;
const KEY_BYTES = 32;

/** Begins a handshake, without a certificate, and breaks it off after the server's first message. */
async function serverHello(port: number): Promise<ServerHello> {
  const raw = dial(port, "127.0.0.1");
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  let received = Buffer.alloc(0);
  const transport = new Duplex({
    read: () => undefined,
    write: (bytes: Buffer, _encoding, done) => void raw.write(bytes, done),
  });
  raw.on("data", (bytes: Buffer) => {
    received = Buffer.concat([received, bytes]);
    if (received.length < RECORD_HEADER_BYTES) return;
    const length = RECORD_HEADER_BYTES + received.readUInt16BE(3);
    if (received.length >= length) resolve(received.subarray(0, length));
  });
  raw.on("error", reject).on("close", () => reject(new Error("the server closed the connection before its hello")));
  await once(raw, "connect");
  const secure = connectTls({
    socket: transport,
    rejectUnauthorized: false,
    ecdhCurve: "X25519",
    minVersion: "TLSv1.3",
    ALPNProtocols: ["h2"],
  });
  secure.on("error", () => undefined);
  try {
    return parse(await promise);
  } finally {
    secure.destroy();
    raw.destroy();
  }
}

function parse(record: Buffer): ServerHello {
  const random = record.subarray(RANDOM_START, RANDOM_START + RANDOM_BYTES).toString("hex");
  let at = RANDOM_START + RANDOM_BYTES;
  at += 1 + record.readUInt8(at); // session id
  at += 2 + 1 + 2; // cipher suite, compression, length of the extensions
  while (at + 4 <= record.length) {
    const length = record.readUInt16BE(at + 2);
    const end = at + 4 + length;
    if (record.readUInt16BE(at) === KEY_SHARE)
      return { random, keyShare: record.toString("hex", end - KEY_BYTES, end) };
    at = end;
  }
  throw new Error("the server's hello has no key share");
}
