import { create } from "@bufbuild/protobuf";
import { frameOrder, invalidField, type BorrowedBytes } from "../../domain/index.ts";
import type { ListeningPort, TunnelClient, TunnelInput, Tunnels, TunnelTarget } from "../../tunnel/index.ts";
import {
  type ListeningPort as ListeningPortMessage,
  ListeningPortSchema,
  ListPortsResponseSchema,
  PortScope,
  Tunnel,
  type TunnelFrame,
  TunnelFrameSchema,
  WaitForPortResponseSchema,
  WatchPortsResponseSchema,
} from "../../../shared/gen/svc/guest/v1alpha1/tunnel_pb.ts";
import type { Call } from "../call.ts";
import { bytesFieldFrame, decodeMessage, type Frame, messageFrame, tryBytesField } from "../codec.ts";
import type { Router } from "../router.ts";

const DATA_FIELD = TunnelFrameSchema.field.data.number;

/** Serves Tunnel: connections to ports and unix sockets of the guest, and the list of listening ports. */
export function serveTunnels(router: Router, tunnels: Tunnels): void {
  router.bidiStream(Tunnel.method.open, (call) => serveOpen(tunnels, call));
  router.unary(Tunnel.method.waitForPort, async (request, call) => {
    const scope = await tunnels.waitForPort(request, call.signal);
    return create(WaitForPortResponseSchema, { scope: PortScope[scope ?? "UNSPECIFIED"] });
  });
  router.unary(Tunnel.method.listPorts, async () => {
    const { ports, truncated } = await tunnels.listPorts();
    return create(ListPortsResponseSchema, { ports: [...ports.values()].map(listeningPort), truncated });
  });
  router.serverStream(Tunnel.method.watchPorts, (_, call) =>
    tunnels.watchPorts({
      isBehind: () => call.queuedBytes > 0,
      send: ({ ports, closed, ...rest }) => {
        const message = { ...rest, ports: ports.map(listeningPort), closed: closed.map(listeningPort) };
        call.send(messageFrame(WatchPortsResponseSchema, create(WatchPortsResponseSchema, message)));
      },
      signal: call.signal,
    }),
  );
}

function listeningPort({ inode, port, family, scope, address, uid, holder }: ListeningPort): ListeningPortMessage {
  return create(ListeningPortSchema, {
    inode: BigInt(inode),
    port,
    family,
    scope: PortScope[scope],
    address,
    uid,
    ...holder,
  });
}

async function serveOpen(tunnels: Tunnels, call: Call): Promise<void> {
  const messages = call.messages();
  const first = await messages.next();
  const { target, windowBytes } = openOf(first && call.decode(TunnelFrameSchema, first));
  const client: TunnelClient = {
    windowBytes,
    input: (take, over) => messages.each((message) => take(inputOf(message)), over),
    opened: (bytes) => call.send(frameOf({ case: "opened", value: { windowBytes: bytes } })),
    data: (bytes, release) => call.send(bytesFieldFrame(DATA_FIELD, bytes), release),
    end: () => call.send(frameOf({ case: "end", value: {} })),
    window: (bytes, done) => call.send(frameOf({ case: "window", value: { bytes } }), done),
    signal: call.signal,
  };
  await tunnels.connect(target, client);
}

type FrameInit = NonNullable<NonNullable<Parameters<typeof create<typeof TunnelFrameSchema>>[1]>["frame"]>;

function frameOf(frame: FrameInit): Frame {
  return messageFrame(TunnelFrameSchema, create(TunnelFrameSchema, { frame }));
}

/** Decodes the first frame. Throws INVALID_ARGUMENT unless it is a valid "open" frame. */
function openOf(first: TunnelFrame | undefined): { readonly target: TunnelTarget; readonly windowBytes: number } {
  const frame = first?.frame;
  if (frame?.case !== "open") throw frameOrder('the first frame must be an "open" frame');
  const { target, windowBytes } = frame.value;
  if (target.case === undefined) throw invalidField("open", "requires a port or a path");
  return { target: target.case === "port" ? { port: target.value } : { path: target.value }, windowBytes };
}

/** Decodes a later frame. Throws INVALID_ARGUMENT for a frame that a client may not send. */
function inputOf(message: BorrowedBytes): TunnelInput {
  const release = (): void => message.release();
  const bytes = tryBytesField(message.bytes, DATA_FIELD);
  if (bytes !== undefined) return { kind: "data", bytes, release };
  const { frame } = decodeMessage(TunnelFrameSchema, message.bytes);
  if (frame.case === "data") return { kind: "data", bytes: frame.value, release };
  release();
  if (frame.case === "end") return { kind: "end" };
  if (frame.case === "window") return { kind: "window", bytes: frame.value.bytes };
  if (frame.case === undefined) throw frameOrder("empty frame, or a frame that this agent does not know");
  throw frameOrder(
    frame.case === "open"
      ? 'second "open" frame; a call opens one tunnel'
      : `${frame.case} frame from the client; only the server sends it`,
  );
}
