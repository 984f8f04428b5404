import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { missingPrograms, type Program, providePrograms } from "../../../scripts/machine/programs.ts";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { processById } from "../../fixtures/proc.ts";
import { Load, type Running } from "../contender.ts";
import { LineProcess } from "../line-process.ts";
import { OPENSSH_PROGRAMS } from "./openssh.ts";

/** Sources of the native program: the client of all contenders, and the server in Go. */
export const GO_SOURCES: string = join(import.meta.dirname, "go");

/**
 * Peers with a server of their own, in the order of their start. node-net is for the start alone, and tar runs in the
 * agent's commands.
 */
export const SERVING_PEERS = ["grpc-go", "openssh"] as const;
export type ServingPeer = (typeof SERVING_PEERS)[number];

/** Programs of a peer that this machine lacks, and that could not be installed. */
export function lackedBy(peer: ServingPeer): readonly Program[] {
  const needs = peer === "openssh" ? OPENSSH_PROGRAMS : [];
  // On a machine with an init an installation would open OpenSSH's port to the world.
  return existsSync("/run/systemd/system") ? missingPrograms(needs) : providePrograms(needs, `for ${peer}`);
}

/** How a server and its client are started. */
export interface StartOptions {
  /**
   * A session for each of them. Otherwise they share that of the bench, whose processes Linux schedules as one group
   * (autogroup of sched(7)).
   */
  readonly ownSessions?: boolean;
}

type Command = readonly [file: string, ...args: string[]];

function commandOf({ ownSessions = false }: StartOptions, ...command: Command): Command {
  return ownSessions ? ["setsid", ...command] : command;
}

/** Starts grpc-go's server of the same schema, with the agent's credentials. */
export async function startGrpcGo(
  native: string,
  { credentialsDir, token }: RunningAgent,
  options: StartOptions = {},
): Promise<Running> {
  const modules = readFileSync(join(GO_SOURCES, "go.mod"), "utf8");
  const [, version = ""] = /google\.golang\.org\/grpc (v\S+)/.exec(modules) ?? [];
  await using starting = new AsyncDisposableStack();
  const server = starting.use(
    new LineProcess(...commandOf(options, native, "serve", credentialsDir, token, "127.0.0.1:0")),
  );
  const address = `127.0.0.1:${await server.line()}`;
  const load = starting.use(new Load(...commandOf(options, native, "load", address, credentialsDir, token)));
  const started = starting.move();
  return {
    description: `a server of the same schema with grpc-go ${version}`,
    load,
    pids: () => [server.pid],
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}

/** Starts the built agent under its launcher without a workload, and connects to it. */
export async function startBuiltAgent(
  native: string,
  agentProgram: string,
  options: StartOptions = {},
): Promise<Running & { readonly agent: RunningAgent }> {
  const agent = await startAgent({ command: commandOf(options, agentProgram) });
  const address = `127.0.0.1:${agent.port}`;
  const load = new Load(...commandOf(options, native, "load", address, agent.credentialsDir, agent.token));
  const pids = [agent.pid, processById(agent.pid)?.parent ?? 0].filter((pid) => pid !== process.pid);
  return {
    description: "the built agent under its launcher",
    agent,
    load,
    tool: (guestctl) => {
      const agentOptions = ["--address", `127.0.0.1:${agent.port}`, "--credentials", agent.credentialsDir];
      return [guestctl, ...agentOptions, "--server-name", "localhost"];
    },
    // The agent's own children are commands: until it has become one, a child shares, and seems to have, all its
    // memory.
    pids: () => pids,
    [Symbol.asyncDispose]: async () => {
      await load[Symbol.asyncDispose]();
      await agent[Symbol.asyncDispose]();
    },
  };
}
