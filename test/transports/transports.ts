import { join } from "node:path";
import type { AgentCommand, RunningAgent } from "../fixtures/agent.ts";
import type { Endpoint } from "./guest.ts";
import { type Attach, betweenPipes, onOneSocket, onRawTerminal, onTwoStreams, relay } from "./relay.ts";

/** What a transport leads to. */
interface Destination {
  readonly agent: RunningAgent;
  /** Its SVC_GUEST_SOCKET. */
  readonly socket: string;
  /** The program guest-agent, for its bridge. */
  readonly command: AgentCommand;
  /** Folder for sockets. */
  readonly folder: string;
}

/** A way to the agent. */
export interface Transport {
  readonly name: string;
  readonly open: (destination: Destination) => Promise<OpenTransport>;
}

/** A transport that can be dialled. */
interface OpenTransport extends Endpoint {
  close(): void;
}

/** Bytes of a bulk case over a transport, whole MiB: several times the size of all its buffers. */
export function bulkBytes({ name }: Transport): number {
  return (name === "TCP" ? 100 : 32) * 1024 * 1024;
}

/** All transports of the contract. `fake` has all but the first. */
export const TRANSPORTS: readonly Transport[] = [
  { name: "TCP", open: ({ agent }) => existing({ dial: { port: agent.port, certificates: agent.certificates } }) },
  { name: "unix socket", open: ({ socket }) => existing({ dial: { socketPath: socket } }) },
  {
    name: "bridge, pipes",
    open: async ({ command, socket, folder }) => {
      const bridge = betweenPipes([...command, "bridge", socket]);
      return { ...(await relayed(join(folder, "pipes.sock"), bridge, onTwoStreams)), bridge };
    },
  },
  {
    name: "bridge, one socket",
    open: ({ command, socket, folder }) =>
      relayed(join(folder, "one.sock"), [...command, "bridge", socket], onOneSocket),
  },
  {
    name: "bridge, raw terminal",
    open: ({ command, socket, folder }) =>
      relayed(join(folder, "terminal.sock"), [...command, "bridge", socket], onRawTerminal),
  },
];

function existing(endpoint: Endpoint): Promise<OpenTransport> {
  return Promise.resolve({ ...endpoint, close: () => undefined });
}

async function relayed(socketPath: string, bridge: AgentCommand, attach: Attach): Promise<OpenTransport> {
  const running = await relay(socketPath, bridge, attach);
  return { dial: { socketPath }, close: () => running.close() };
}
