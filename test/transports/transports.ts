import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import type { AgentCommand, RunningAgent } from "../fixtures/agent.ts";
import type { ConnectOptions } from "../../src/node/client/index.ts";
import { optionsFor } from "../fixtures/guest-client.ts";
import { vmmSocket } from "../fixtures/vmm-socket.ts";

/** What a transport connects to. */
interface Destination {
  readonly agent: RunningAgent;
  /** Its SVC_GUEST_SOCKET. */
  readonly socket: string;
  /** The program guest-agent, for its bridge. */
  readonly command: AgentCommand;
  /** Directory for sockets. */
  readonly directory: string;
}

/** A way to the agent. */
interface Transport {
  readonly name: string;
  /** Bytes of a bulk case, whole MiB: several times the size of all its buffers. */
  readonly bulkBytes: number;
  readonly open: (destination: Destination) => Promise<{ readonly options: ConnectOptions } & Partial<Disposable>>;
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
    name: "vsock, by a VMM's socket",
    bulkBytes: 32 * MEBIBYTE,
    open: async ({ agent, socket, directory }) => {
      const path = join(directory, "vm.sock");
      const vmm = await vmmSocket(path, socket);
      const address = `vsock+unix:${path}:7071`;
      return { options: { address, token: agent.token }, [Symbol.dispose]: () => void vmm[Symbol.asyncDispose]() };
    },
  },
  {
    name: "bridge, pipes",
    bulkBytes: 32 * MEBIBYTE,
    open: ({ agent, command, socket }) => {
      // Real pipes: Node's own are sockets.
      const bridge = ["sh", "-c", 'cat | "$@" | cat', "sh", ...command, "bridge", socket] as const;
      return Promise.resolve({ options: { bridge, token: agent.token } });
    },
  },
  {
    name: "bridge, one socket",
    bulkBytes: 32 * MEBIBYTE,
    open: async ({ agent, command, socket, directory }) => {
      const path = join(directory, "one.sock");
      const running = await relay(path, [...command, "bridge", socket]);
      return { options: { address: `unix:${path}`, token: agent.token }, [Symbol.dispose]: () => running.close() };
    },
  },
];

/**
 * Listens on a unix socket for clients that dial one. Each connection gets its own bridge, of which it is standard
 * input and output itself, as with inetd.
 */
async function relay(path: string, [program, ...args]: AgentCommand): Promise<{ close(): void }> {
  const connections = new Set<Socket>();
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (connection) => {
    connections.add(connection.on("error", () => connection.destroy()));
    connection.on("close", () => connections.delete(connection));
    const child = spawn(program, args, { stdio: [connection, connection, "inherit"] });
    child.on("spawn", () => connection.destroy());
  }).listen(path);
  await once(server, "listening");
  return {
    close: () => {
      server.close();
      for (const connection of connections) connection.destroy();
    },
  };
}
