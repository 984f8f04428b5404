import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Tunnel, TunnelFrameSchema } from "../../src/shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import { envelope, RawHttp2 } from "../fixtures/raw-http2.ts";
import type { Random } from "../fixtures/seeded-random.ts";
import type { Attack, Target } from "./attack.ts";

type FrameInit = NonNullable<MessageInitShape<typeof TunnelFrameSchema>["frame"]>;

const OPEN = `${Tunnel.typeName}/${Tunnel.method.open.name}`;
/** Streams of one connection: fewer than the agent allows. */
const CALLS_AT_ONCE = 48;
const FRAMES_A_CALL = 6;
const ANSWER_LIMIT_MS = 30_000;
const EXTREME = [0, 1, 64, 65_536, 2 ** 31, 2 ** 32 - 1] as const;
/** Bytes of the servers' output that half of the peers read. */
const READ_BYTES = 2 ** 24;
const PIECE: Buffer = Buffer.alloc(2 ** 16);

type Manner = (socket: Socket) => void;

/** How a server in the guest behaves. */
const MANNERS: readonly [Manner, ...Manner[]] = [
  (socket) => socket.pause(),
  (socket) => socket.pipe(socket),
  (socket) => void socket.resetAndDestroy(),
  (socket) => void socket.end("its end first"),
  (socket) => {
    const flood = (): void => void (socket.writable && socket.write(PIECE, flood));
    flood();
  },
];

function message(frame: FrameInit): Uint8Array {
  return toBinary(TunnelFrameSchema, create(TunnelFrameSchema, { frame }));
}

/** Where a tunnel of the storm begins: most lead to the server. */
function openFrame(port: number, agentPort: number, random: Random): FrameInit {
  const value = random.oneOf([port, port, port, 0, agentPort, 2 ** 32 - 1]);
  return { case: "open", value: { target: { case: "port", value }, windowBytes: random.oneOf(EXTREME) } };
}

/** Tunnels to servers of every kind, from peers that send any frames in any order; half of the peers never read. */
async function stormOfTunnels({ agent, inputs, random }: Target): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket.on("error", () => {}).on("close", () => sockets.delete(socket)));
    random.oneOf(MANNERS)(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const target = (): FrameInit => openFrame(port, agent.port, random);
  let sent = 0;
  try {
    while (sent < inputs) {
      const isUnread = random.below(2) === 0;
      using peer = await RawHttp2.dial(agent, { windowBytes: isUnread ? 0 : READ_BYTES });
      for (let call = 0; call < CALLS_AT_ONCE && !peer.isEnded; call++) {
        const stream = peer.call(OPEN, agent.token, message(target()), false);
        const frames = random.below(FRAMES_A_CALL);
        for (let count = 0; count < frames; count++) {
          const frame = random.oneOf<FrameInit>([
            { case: "data", value: random.bytes(random.oneOf([0, 1, 9_000])) },
            { case: "window", value: { bytes: random.oneOf(EXTREME) } },
            { case: "end", value: {} },
            { case: "opened", value: { windowBytes: random.oneOf(EXTREME) } },
            target(),
          ]);
          const isLast = random.below(4) === 0;
          peer.data(stream, envelope(message(frame)), isLast);
          if (isLast) break;
        }
        sent += 1 + frames;
      }
      // Refusals come even if nobody reads.
      if (!(await peer.holds(() => peer.answered.size > 1, ANSWER_LIMIT_MS)))
        throw new Error("nobody was answered in a storm of tunnels");
    }
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
  return sent;
}

export const tunnelAttacks: readonly Attack[] = [
  { name: "tunnels of every manner, half of them unread", weight: 4, run: stormOfTunnels },
];
