import type { Socket } from "node:net";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type ExecAttachSchema,
  ExecFrameSchema,
  ExecWhenFull,
} from "../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { Tunnel, TunnelFrameSchema } from "../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { endAll, listExecs } from "../fixtures/kept-commands.ts";
import { echo, listener } from "../fixtures/listeners.ts";
import { envelope, RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Random } from "../fixtures/seeded-random.ts";
import type { Attack, Target } from "./attack.ts";

type ExecInit = NonNullable<MessageInitShape<typeof ExecFrameSchema>["frame"]>;
type TunnelInit = NonNullable<MessageInitShape<typeof TunnelFrameSchema>["frame"]>;

/** Streams of one connection: fewer than the agent allows. */
const CALLS_AT_ONCE = 48;
const MOST_FRAMES = 5;
/** Bytes of the floods that half of the peers read; nobody needs the rest. */
const READ_BYTES = 2 ** 24;
const ANSWER_LIMIT_MS = 30_000;
const OPEN = `${Tunnel.typeName}/${Tunnel.method.open.name}`;
const OFFSETS = [0n, 1n, 65_536n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n] as const;
const WINDOWS = [0, 1, 64, 65_536, 2 ** 31, 2 ** 32 - 1] as const;
const NAMES = ["flood", "pipe", "gone", "", ".", "__proto__", "x".repeat(129), "\0", "../a"] as const;
const PIECE: Buffer = Buffer.alloc(2 ** 16);
/** A command that writes endlessly, one that stops without acknowledgements, and one that has ended. */
const COMMANDS: readonly ExecInit[] = [
  { case: "start", value: { args: ["yes"], keep: { name: "flood", bufferBytes: 1 } } },
  {
    case: "start",
    value: { args: ["cat"], stdin: true, keep: { name: "pipe", bufferBytes: 4_096, whenFull: ExecWhenFull.BLOCK } },
  },
  { case: "start", value: { args: ["true"], keep: { name: "gone" } } },
];
/** How a server in the guest behaves. */
const MANNERS: readonly [(socket: Socket) => void, ...((socket: Socket) => void)[]] = [
  (socket) => socket.pause(),
  echo,
  (socket) => void socket.resetAndDestroy(),
  (socket) => void socket.end("its end first"),
  (socket) => {
    const flood = (): void => void (socket.writable && socket.write(PIECE, flood));
    flood();
  },
];

/** What the calls of a storm are. */
interface Storm {
  readonly method: string;
  readonly first: () => Uint8Array;
  readonly later: () => Uint8Array;
  /** Messages of calls that each connection begins with. */
  readonly before?: readonly Uint8Array[];
}

/** Peers one after another, each with many calls of any frames in any order; half of the peers never read. */
async function rage({ agent, inputs, random }: Target, { method, first, later, before = [] }: Storm): Promise<number> {
  let sent = 0;
  while (sent < inputs) {
    const isUnread = random.below(2) === 0;
    using peer = await RawHttp2.dial(agent, { windowBytes: isUnread ? 0 : READ_BYTES });
    for (const message of before) peer.call(method, agent.token, message, false);
    for (let call = 0; call < CALLS_AT_ONCE && !peer.isEnded; call++) {
      const stream = peer.call(method, agent.token, first(), false);
      let isLast = false;
      for (let frames = random.below(MOST_FRAMES); frames > 0 && !isLast; frames--) {
        isLast = random.below(4) === 0;
        peer.data(stream, envelope(later()), isLast);
        sent++;
      }
      sent++;
    }
    // Refusals, and calls that lost their places, are answered even if nobody reads.
    if (!(await peer.holds(() => peer.answered.size > 1, ANSWER_LIMIT_MS)))
      throw new Error("nobody was answered in a storm");
  }
  return sent;
}

const execFrame = (frame: ExecInit): Uint8Array => toBinary(ExecFrameSchema, create(ExecFrameSchema, { frame }));
const tunnelFrame = (frame: TunnelInit): Uint8Array =>
  toBinary(TunnelFrameSchema, create(TunnelFrameSchema, { frame }));

function attachFrame(random: Random): ExecInit {
  const offset = (): bigint | undefined => (random.below(2) === 0 ? undefined : random.oneOf(OFFSETS));
  const [stdoutOffset, stderrOffset] = [offset(), offset()];
  const value: MessageInitShape<typeof ExecAttachSchema> = {
    name: random.oneOf(NAMES),
    execId: random.oneOf(["", "", "", "0".repeat(32)]),
    fromNow: random.below(2) === 0,
    ...(stdoutOffset !== undefined && { stdoutOffset }),
    ...(stderrOffset !== undefined && { stderrOffset }),
    ...(random.below(4) === 0 && { size: { cols: random.oneOf([0, 80, 2 ** 32 - 1]), rows: 24 } }),
  };
  return { case: "attach", value };
}

/** Calls that take each other's place, with impossible offsets, names and frames. */
async function attachOften(target: Target): Promise<number> {
  const { agent, random } = target;
  const sent = await rage(target, {
    method: "Exec",
    before: COMMANDS.map(execFrame),
    first: () => execFrame(attachFrame(random)),
    later: () =>
      execFrame(
        random.oneOf<ExecInit>([
          { case: "ack", value: { stdoutOffset: random.oneOf(OFFSETS), stderrOffset: random.oneOf(OFFSETS) } },
          { case: "stdin", value: random.bytes(random.oneOf([0, 1, 9_000])) },
          { case: "stdinAck", value: { offset: random.oneOf(OFFSETS) } },
          { case: "gap", value: { bytes: random.oneOf(OFFSETS) } },
          { case: "resize", value: { cols: 80, rows: 24 } },
          { case: "forget", value: {} },
        ]),
      ),
  });
  const kept = await listExecs(agent);
  if (kept.length > COMMANDS.length) throw new Error(`${kept.length} execs are kept`);
  // A start that was in flight when its peer left can come after the list of commands to end.
  const deadline = performance.now() + ANSWER_LIMIT_MS;
  do await endAll(agent);
  while ((await listExecs(agent)).length > 0 && performance.now() < deadline);
  if ((await listExecs(agent)).length > 0) throw new Error("an exec that was ended and forgotten is still kept");
  return sent;
}

/** Tunnels to servers of every kind. Most tunnels reach their server. */
async function openOften(target: Target): Promise<number> {
  const { agent, random } = target;
  await using server = await listener((socket) => random.oneOf(MANNERS)(socket));
  const { port } = server;
  const openFrame = (): TunnelInit => ({
    case: "open",
    value: {
      target: { case: "port", value: random.oneOf([port, port, port, 0, agent.port, 2 ** 32 - 1]) },
      windowBytes: random.oneOf(WINDOWS),
    },
  });
  return await rage(target, {
    method: OPEN,
    first: () => tunnelFrame(openFrame()),
    later: () =>
      tunnelFrame(
        random.oneOf<TunnelInit>([
          { case: "data", value: random.bytes(random.oneOf([0, 1, 9_000])) },
          { case: "window", value: { bytes: random.oneOf(WINDOWS) } },
          { case: "end", value: {} },
          { case: "opened", value: { windowBytes: random.oneOf(WINDOWS) } },
          openFrame(),
        ]),
      ),
  });
}

export const storms: readonly Attack[] = [
  { name: "storms of attaches to kept commands", weight: 4, run: attachOften },
  { name: "tunnels of every manner, half of them unread", weight: 4, run: openOften },
];
