import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import type { AgentCommand } from "../fixtures/agent.ts";

/**
 * Listens on a unix socket for clients that dial one. Each connection gets its own bridge, of which it is standard
 * input and output itself, as with inetd.
 */
export async function relay(path: string, [program, ...args]: AgentCommand): Promise<{ close(): void }> {
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

/** Puts real pipes around a command: Node's own are sockets. */
export function betweenPipes(command: AgentCommand): AgentCommand {
  return ["sh", "-c", 'cat | "$@" | cat', "sh", ...command];
}
