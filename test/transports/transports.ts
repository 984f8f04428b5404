import { join } from "node:path";
import type { AgentCommand, RunningAgent } from "../fixtures/agent.ts";
import type { ConnectOptions } from "../../src/node/client/index.ts";
import { optionsFor } from "../fixtures/guest-client.ts";
import { betweenPipes, relay } from "./relay.ts";

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
  /** Bytes of a bulk case, whole MiB: several times the size of all its buffers. */
  readonly bulkBytes: number;
  readonly open: (destination: Destination) => Promise<OpenTransport>;
}

/** A transport that can be dialled. */
interface OpenTransport extends Partial<Disposable> {
  readonly options: ConnectOptions;
}

const MEBIBYTE = 1024 * 1024;

/** All transports of the contract. */
export const TRANSPORTS: readonly Transport[] = [
  {
    name: "TCP",
    bulkBytes: 100 * MEBIBYTE,
    open: ({ agent }) => Promise.resolve({ options: optionsFor(agent) }),
  },
  {
    name: "unix socket",
    bulkBytes: 32 * MEBIBYTE,
    open: ({ agent, socket }) => Promise.resolve({ options: { address: `unix:${socket}`, token: agent.token } }),
  },
  {
    name: "bridge, pipes",
    bulkBytes: 32 * MEBIBYTE,
    open: ({ agent, command, socket }) =>
      Promise.resolve({
        options: { bridge: betweenPipes([...command, "bridge", socket]), token: agent.token },
      }),
  },
  {
    name: "bridge, one socket",
    bulkBytes: 32 * MEBIBYTE,
    open: async ({ agent, command, socket, folder }) => {
      const path = join(folder, "one.sock");
      const running = await relay(path, [...command, "bridge", socket]);
      return { options: { address: `unix:${path}`, token: agent.token }, [Symbol.dispose]: () => running.close() };
    },
  },
];
