import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { processById } from "../../fixtures/proc.ts";
import { missingPrograms, type Program, providePrograms } from "../../../scripts/machine/programs.ts";
import { type Grounds, Load, type PeerKind, type Running } from "../contender.ts";
import { LineProcess } from "../line-process.ts";
import type { Peer } from "../row.ts";
import { OPENSSH } from "./openssh.ts";

/** Sources of the native program: the client of all contenders, and the servers in Go. */
export const GO_SOURCES: string = join(import.meta.dirname, "go");

/** Peers with a server of their own: node-net is for the start alone, and tar runs in the agent's commands. */
export type ServingPeer = Exclude<Peer, "node-net" | "exec-tar">;

const PEERS: Readonly<Record<ServingPeer, PeerKind>> = {
  "grpc-go": {
    plan: ({ program, credentialsFolder, token }) => ({
      description: `a server of the same schema with grpc-go ${grpcGoVersion()}`,
      command: [program, "serve", credentialsFolder, token],
      untilUp: async (server) => new Load(program, `127.0.0.1:${await server.line()}`, credentialsFolder, token),
    }),
  },
  openssh: OPENSSH,
};

/** The peers, in the order of their start. */
export const SERVING_PEERS = Object.keys(PEERS) as readonly ServingPeer[];

function grpcGoVersion(): string {
  const modules = readFileSync(join(GO_SOURCES, "go.mod"), "utf8");
  return /google\.golang\.org\/grpc (v\S+)/.exec(modules)?.[1] ?? "";
}

/** Programs of a peer that this machine lacks, and that could not be installed. */
export function lackedBy(peer: ServingPeer): readonly Program[] {
  const { needs = [] } = PEERS[peer];
  // On a machine with an init an installation would open OpenSSH's port to the world.
  return existsSync("/run/systemd/system") ? missingPrograms(needs) : providePrograms(needs, `for ${peer}`);
}

/** Starts a peer and connects to it. */
export async function startPeer(peer: ServingPeer, grounds: Grounds): Promise<Running> {
  const { description, command, untilUp, tool, pids = ({ pid }) => [pid] } = await PEERS[peer].plan(grounds);
  await using starting = new AsyncDisposableStack();
  const server = starting.use(new LineProcess(...command));
  const load = await untilUp(server);
  starting.use(load);
  const started = starting.move();
  return {
    description,
    ...(load && { load }),
    ...(tool && { tool }),
    pids: () => pids(server),
    [Symbol.asyncDispose]: () => started.disposeAsync(),
  };
}

/** The built agent under its launcher. */
export interface MeasuredAgent extends Running {
  readonly agent: RunningAgent;
}

/** Starts the built agent without a workload, and connects to it. */
export async function startBuiltAgent(native: string, agentProgram: string): Promise<MeasuredAgent> {
  const agent = await startAgent({ command: [agentProgram] });
  const load = new Load(native, `127.0.0.1:${agent.port}`, agent.credentialsDir, agent.token);
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
