import assert from "node:assert/strict";
import { fromBinary } from "@bufbuild/protobuf";
import { execa } from "execa";
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
  return {
    kernel: kernel.split(" "),
    vdso: vdso === "none" ? [] : vdso.split(" "),
    ...(await serverHello(machine.agentPort)),
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

/** The random parts of a server's TLS handshake, in hex: OpenSSL's client shows them. */
async function serverHello(port: number): Promise<Pick<Draws, "tlsRandom" | "tlsKeyShare">> {
  const client = ["s_client", "-connect", `127.0.0.1:${port}`, "-tls1_3", "-groups", "X25519", "-alpn", "h2", "-trace"];
  const { stdout } = await execa("openssl", client, { input: "", reject: false, timeout: DRAW_LIMIT_MS });
  const [, hello = ""] = stdout.split(" ServerHello, ");
  const [, begin, rest] = /gmt_unix_time=0x(\w+)\s+random_bytes \(len=28\): (\w+)/.exec(hello) ?? [];
  const [, tlsKeyShare] = /key_exchange: +\(len=32\): (\w+)/.exec(hello) ?? [];
  assert.ok(begin !== undefined && rest !== undefined && tlsKeyShare !== undefined, stdout);
  return { tlsRandom: begin + rest, tlsKeyShare };
}
