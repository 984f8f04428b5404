import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { Writable } from "node:stream";
import { BufferPool } from "../../src/agent/domain/index.ts";
import { FdSink } from "../../src/agent/platform/streams/sink.ts";
import { FdSource, STREAM_BUFFERS } from "../../src/agent/platform/streams/source.ts";
import type { AgentCommand } from "../fixtures/agent.ts";
import { addon } from "../fixtures/spawning.ts";

/** Joins a connection to a new process of the bridge. */
export type Attach = (connection: Socket, bridge: AgentCommand) => void;

/** Listens on a unix socket for clients that dial one; each connection gets its own bridge. */
export async function relay(path: string, bridge: AgentCommand, attach: Attach): Promise<{ close(): void }> {
  const connections = new Set<Socket>();
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (connection) => {
    connections.add(connection.on("error", () => connection.destroy()));
    connection.on("close", () => connections.delete(connection));
    attach(connection, bridge);
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

/** Standard input and output are one socket, the connection itself, as inetd does. */
export const onOneSocket: Attach = (connection, [program, ...args]) => {
  const child = spawn(program, args, { stdio: [connection, connection, "inherit"] });
  child.on("spawn", () => connection.destroy());
};

/** Standard input and output are a terminal in raw mode, in place of a serial line or a virtio-serial port. */
export const onRawTerminal: Attach = (connection, [program, ...args]) => {
  const ends = addon.openTerminal(80, 24);
  if (typeof ends === "number") throw new Error(`no terminal: ${ends}`);
  const [master, slave] = ends;
  execFileSync("stty", ["raw", "-echo"], { stdio: [slave, "ignore", "inherit"] });
  const child = spawn(program, args, { stdio: [slave, slave, "inherit"] });
  closeSync(slave);
  const source = new FdSource(addon, new BufferPool(STREAM_BUFFERS), "terminal", master);
  const sink = new FdSink(addon, "terminal", addon.duplicate(master));
  source.start({
    chunk: (bytes, release) => void connection.write(bytes, () => release()),
    end: () => void connection.end(),
  });
  connection.pipe(
    new Writable({
      async write(bytes: Uint8Array, _encoding, done): Promise<void> {
        await sink.write(bytes);
        done();
      },
    }),
  );
  connection.on("close", () => {
    source.close();
    sink.close();
  });
  child.on("exit", () => connection.end());
};
