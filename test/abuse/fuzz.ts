import { chmod, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { type DescField, type DescMessage, type DescMethod, fromBinary, ScalarType } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { ExecSessions } from "../../src/shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { FileTree } from "../../src/shared/gen/svc/guest/v1alpha1/file_tree_pb.ts";
import { GuestAgent } from "../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { RestoreDutiesRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/restore_pb.ts";
import { Tunnel, WaitForPortRequestSchema } from "../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { endAll } from "../fixtures/kept-commands.ts";
import { envelope, FRAME, frame, RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Random } from "../fixtures/seeded-random.ts";
import type { Attack, Target } from "./attack.ts";

/** Calls in flight on one connection. */
const BATCH = 48;
const ANSWER_LIMIT_MS = 20_000;
/** Deep enough for every message of the schema. */
const DEPTH = 4;

/** A message built from its descriptor, with valid, extreme and invalid values, and then often damaged. */
function fuzzedMessage(schema: DescMessage, random: Random, scratch: string): Uint8Array {
  const bytes = buildMessage(schema, random, scratch, DEPTH);
  return random.below(3) === 0 ? damaged(bytes, random) : bytes;
}

function buildMessage(schema: DescMessage, random: Random, scratch: string, depth: number): Uint8Array {
  const writer = new BinaryWriter();
  for (const field of schema.fields) {
    const times = random.oneOf([0, 1, 1, 1, 2, 40]);
    for (let count = 0; count < (field.fieldKind === "message" ? Math.min(times, 2) : times); count++)
      writeField(writer, field, random, scratch, depth);
  }
  if (random.below(8) === 0)
    writer.tag(random.oneOf([15, 1_000, 536_870_911]), WireType.LengthDelimited).bytes(random.bytes(9));
  return writer.finish();
}

function writeField(writer: BinaryWriter, field: DescField, random: Random, scratch: string, depth: number): void {
  if (random.below(20) === 0) {
    writer.tag(field.number, random.oneOf([WireType.Bit64, WireType.Bit32])).fixed64(2n ** 64n - 1n);
    return;
  }
  if (field.message !== undefined) {
    if (depth > 0)
      writer.tag(field.number, WireType.LengthDelimited).bytes(buildMessage(field.message, random, scratch, depth - 1));
    return;
  }
  if (field.scalar === ScalarType.STRING || field.scalar === ScalarType.BYTES || field.fieldKind === "map") {
    writer.tag(field.number, WireType.LengthDelimited).bytes(text(field.name, random, scratch));
    return;
  }
  writer
    .tag(field.number, WireType.Varint)
    .uint64(random.oneOf([0n, 1n, 80n, 2n ** 31n - 1n, 2n ** 32n - 1n, 2n ** 63n, 2n ** 64n - 1n]));
}

/** Fuzzed writes can create files only in the scratch directory, and commands are harmless. */
function text(field: string, random: Random, scratch: string): Uint8Array {
  if (random.below(6) === 0) return random.bytes(random.oneOf([1, 3, 300]));
  if (field === "args") return Buffer.from(random.oneOf(["true", "/bin/true", "", "-x", "x".repeat(5_000), "a\0b"]));
  if (["path", "new_path", "cwd", "beneath"].includes(field))
    return Buffer.from(
      random.oneOf([
        scratch,
        join(scratch, "file"),
        join(scratch, "a/b"),
        "file",
        "",
        "..",
        "/dev/null/x",
        `/${"x".repeat(5_000)}`,
        "a\0b",
      ]),
    );
  return Buffer.from(random.oneOf(["", "root", "nobody", "0:0", "xterm", "x".repeat(300), "a=b"]));
}

function damaged(bytes: Uint8Array, random: Random): Uint8Array {
  const copy = Buffer.from(bytes);
  switch (random.below(4)) {
    case 0:
      return copy.subarray(0, random.below(copy.length + 1));
    case 1:
      return Buffer.concat([copy, random.bytes(random.below(20))]);
    case 2:
      return Buffer.concat([copy.subarray(random.below(copy.length + 1)), copy]);
    default:
      for (let count = 0; count <= random.below(4); count++)
        if (copy.length > 0) copy[random.below(copy.length)] = random.below(256);
      return copy;
  }
}

const DIRECTORY_CALLS: ReadonlySet<DescMessage> = new Set(Object.values(FileTree.method).map(({ input }) => input));

/**
 * Inputs that would harm this machine or block a run instead of attacking the agent. Undecodable inputs are never among
 * them.
 */
function isHarmful(schema: DescMessage, bytes: Uint8Array, scratch: string): boolean {
  try {
    if (schema === RestoreDutiesRequestSchema)
      return fromBinary(RestoreDutiesRequestSchema, bytes).hostTime !== undefined;
    // The fuzzed time limit may be a day.
    if (schema === WaitForPortRequestSchema) {
      const { port, timeoutMs } = fromBinary(WaitForPortRequestSchema, bytes);
      return port > 0 && port < 65_536 && timeoutMs !== 1 && timeoutMs <= 86_400_000;
    }
    return DIRECTORY_CALLS.has(schema) && leaves(scratch, fromBinary(schema, bytes) as unknown as PathFields);
  } catch {
    return false;
  }
}

type PathFields = Readonly<Record<string, Uint8Array>>;

function leaves(scratch: string, message: PathFields): boolean {
  const paths = ["path", "newPath", "beneath", "target"].map((name) => Buffer.from(message[name] ?? []).toString());
  return paths.some((path) => path.includes("/..") || (path.startsWith("/") && !`${path}/`.startsWith(`${scratch}/`)));
}

/** Every method of the services, many calls at once; restore duties end all other connections, so they come rarely. */
async function fuzzMessages({ agent, random, scratch, inputs }: Target): Promise<number> {
  let sent = 0;
  while (sent < inputs) {
    using peer = await RawHttp2.dial(agent);
    while (sent < inputs && !peer.isEnded) sent += await fuzzBatch(peer, agent.token, random, scratch);
  }
  await endAll(agent);
  // They may have removed or closed the directory that the other attacks use.
  await mkdir(scratch, { recursive: true });
  await chmod(scratch, 0o700);
  return sent;
}

async function fuzzBatch(peer: RawHttp2, token: string, random: Random, scratch: string): Promise<number> {
  const methods = [GuestAgent, ExecSessions, FileTree, Tunnel]
    .flatMap((service) => Object.values(service.method) as DescMethod[])
    // A watch ends with its caller.
    .filter(({ name }) => name !== Tunnel.method.watchPorts.name && name !== FileTree.method.watch.name);
  const streams: number[] = [];
  for (let count = 0; count < BATCH; count++) {
    const method = methods[random.below(methods.length)] ?? GuestAgent.method.health;
    if (method === GuestAgent.method.runRestoreDuties && random.below(10) > 0) continue;
    const message = fuzzedMessage(method.input, random, scratch);
    if (isHarmful(method.input, message, scratch)) continue;
    const stream = peer.call(`${method.parent.typeName}/${method.name}`, token);
    const parts = [envelope(message)];
    if (method.methodKind !== "unary" && random.below(2) === 0)
      parts.push(envelope(fuzzedMessage(method.input, random, scratch)));
    if (random.below(30) === 0) parts.push(random.bytes(7));
    peer.data(stream, Buffer.concat(parts), true);
    streams.push(stream);
  }
  const isAnswered = await peer.holds(() => streams.every((stream) => peer.hasClosed(stream)), ANSWER_LIMIT_MS);
  if (!isAnswered && !peer.isEnded) throw new Error("a call with a fuzzed message got no answer");
  return streams.length;
}

/** Frames of every type and of unknown ones, on connections that were valid before. */
async function fuzzFrames({ agent, random, inputs }: Target): Promise<number> {
  let sent = 0;
  while (sent < inputs) {
    using peer = await RawHttp2.dial(agent);
    const stream = peer.call("Health", agent.token);
    const count = 1 + random.below(64);
    for (let index = 0; index < count; index++) {
      const type = random.below(12);
      const size = random.oneOf([0, 1, 4, 5, 6, 8, 9, 100, 17_000]);
      // Most types accept a payload of zeros.
      const payload = random.below(2) === 0 ? Buffer.alloc(size) : random.bytes(Math.min(size, 200));
      peer.send(frame(type, random.below(256), random.oneOf([0, stream, stream + 2, 2, 2 ** 31 - 1]), payload));
    }
    peer.send(frame(FRAME.ping, 0, 0, Buffer.alloc(8)));
    sent += count;
    // The agent may close the connection; it must serve the next one.
    await peer.holds(() => peer.answered.size > 0, 50);
  }
  return sent;
}

export const fuzzing: readonly Attack[] = [
  { name: "fuzzed messages of every method", weight: 20, run: fuzzMessages },
  { name: "fuzzed frames", weight: 20, run: fuzzFrames },
];
