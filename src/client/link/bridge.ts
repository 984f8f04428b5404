import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { credentials, type ChannelCredentials, type ChannelOptions } from "@grpc/grpc-js";
import { GuestError } from "../errors.ts";
import { joinToCommand } from "./bridge-command.ts";
import type { Link } from "./link.ts";
import type { BridgeOptions } from "./options.ts";

/**
 * Connections through a command. grpc-js dials sockets only: a private unix socket, in a folder that nobody else may
 * enter, starts the command for each connection that it takes. Closing removes the folder.
 */
export class BridgeLink implements Link {
  readonly target: string;
  readonly credentials: ChannelCredentials = credentials.createInsecure();
  /** Each attempt is a process: further apart than attempts at a socket. */
  readonly options: ChannelOptions = {
    "grpc.initial_reconnect_backoff_ms": 250,
    "grpc.max_reconnect_backoff_ms": 10_000,
  };
  readonly #folder: string;
  readonly #server: Server;
  #failure: string | undefined;

  /** Throws GuestError where there is no command or no place for the socket. */
  constructor({ bridge, env }: Omit<BridgeOptions, "token">) {
    const [program, ...args] = Array.isArray(bridge) ? (bridge as readonly string[]) : [];
    if (!program) {
      throw new GuestError({
        status: "INVALID_ARGUMENT",
        message: "bridge is no list or an empty one; name the command and its arguments",
      });
    }
    this.#folder = privateFolder();
    const path = join(this.#folder, "bridge.sock");
    this.target = `unix:${path}`;
    this.#server = createServer({ allowHalfOpen: true }, (socket) => {
      joinToCommand(socket, { program, args, env }, (failure) => {
        this.#failure = failure;
      });
    });
    this.#server.on("error", (error) => {
      this.#failure = `cannot listen on ${path}: ${error.message}; TMPDIR must name a folder with a short path`;
    });
    // Exclusive: bound at once, in a worker of a cluster as well.
    this.#server.listen({ path, exclusive: true });
    this.#server.unref();
  }

  failure(): string | undefined {
    return this.#failure;
  }

  close(): void {
    this.#server.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function privateFolder(): string {
  try {
    return mkdtempSync(join(tmpdir(), "guest-agent-bridge-"));
  } catch (cause) {
    const message = `the bridge needs a folder in ${tmpdir()}, which cannot be written; set TMPDIR`;
    throw new GuestError({ status: "UNAVAILABLE", message, cause });
  }
}
