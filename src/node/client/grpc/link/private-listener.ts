import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ErrorCode } from "../../errors/error-codes.ts";
import { failure } from "../../errors/errors.ts";
import type { Cause } from "../grpc-texts.ts";

/** A listening unix socket in a new directory, which only this user can access. */
export interface PrivateListener {
  /** Address of the socket, in the syntax of grpc-js. */
  readonly target: string;
  /** Accepts no more connections and removes the socket. */
  close(): void;
}

/**
 * Listens on a private unix socket, which grpc-js dials if it cannot dial the agent itself. The caller then joins each
 * accepted connection to the agent in its own way. Neither the listener nor its connections keep this process alive.
 *
 * @param name part of the name of the socket's directory
 * @param code error code of both possible failures: if the directory cannot be created, this function throws a
 *   GuestError; if the socket cannot listen, it calls `failed` later
 */
export function listenPrivately(
  name: "bridge" | "dial",
  code: ErrorCode,
  accepted: (socket: Socket) => void,
  failed: (cause: Cause) => void,
): PrivateListener {
  let directory: string;
  try {
    directory = mkdtempSync(join(tmpdir(), `guest-agent-${name}-`));
  } catch (cause) {
    const message = `cannot create a directory for a socket in ${tmpdir()}; set TMPDIR to a writable directory`;
    throw failure("UNAVAILABLE", code, message, cause);
  }
  const path = join(directory, "agent.sock");
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => socket.destroy());
    accepted(socket.unref());
  });
  server.on("error", (error) => {
    const message = `cannot listen on ${path}: ${error.message}; TMPDIR must name a directory with a short path`;
    failed({ code, message });
  });
  // In a worker of node:cluster, `exclusive` makes the worker itself bind the socket immediately. Without `exclusive`,
  // the worker would ask the primary process, which would bind the socket later.
  server.listen({ path, exclusive: true });
  server.unref();
  return {
    target: `unix:${path}`,
    close: () => {
      server.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
