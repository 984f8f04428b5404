import { join } from "node:path";
import type { AgentCommand, RunningAgent } from "../fixtures/agent.ts";
import type { Endpoint } from "./guest.ts";
import { type Attach, betweenPipes, onOneSocket, onRawTerminal, onTwoStreams, relay } from "./relay.ts";

/** A way to the agent. */
export interface Transport {
  readonly name: string;
  /** `folder` is for sockets, `bridge` the command that joins its standard streams to the agent. */
  open(agent: RunningAgent, folder: string, bridge: AgentCommand): Promise<OpenTransport>;
}

/** A way that can be dialled. */
export interface OpenTransport extends Endpoint {
  close(): void;
}

/** Path of an agent's SVC_GUEST_SOCKET in its folder. */
export function guestSocket(folder: string): string {
  return join(folder, "guest.sock");
}

/** All ways of the contract. `fake` has the last four. */
export const TRANSPORTS: readonly Transport[] = [
  {
    name: "TCP",
    open: ({ port, certificates }) => Promise.resolve({ dial: { port, certificates }, close: () => undefined }),
  },
  {
    name: "unix socket",
    open: (_agent, folder) => Promise.resolve({ dial: { socketPath: guestSocket(folder) }, close: () => undefined }),
  },
  {
    name: "bridge, pipes",
    open: async (_agent, folder, bridge) => ({
      ...(await relayed(join(folder, "pipes.sock"), betweenPipes(bridge), onTwoStreams)),
      bridge: betweenPipes(bridge),
    }),
  },
  {
    name: "bridge, one socket",
    open: (_agent, folder, bridge) => relayed(join(folder, "one.sock"), bridge, onOneSocket),
  },
  {
    name: "bridge, raw terminal",
    open: (_agent, folder, bridge) => relayed(join(folder, "terminal.sock"), bridge, onRawTerminal),
  },
];

async function relayed(socketPath: string, bridge: AgentCommand, attach: Attach): Promise<OpenTransport> {
  const running = await relay(socketPath, bridge, attach);
  return { dial: { socketPath }, close: () => running.close() };
}
