import { type RunningAgent, startAgent } from "../../../test/fixtures/agent.ts";
import type { Running } from "../contender.ts";
import { Load } from "../load.ts";
import { parentOf } from "../proc.ts";

/** The built agent under its launcher. */
export interface MeasuredAgent extends Running {
  readonly agent: RunningAgent;
}

/** Starts the built agent without a workload, and connects to it. */
export async function startBuiltAgent(native: string, agentProgram: string): Promise<MeasuredAgent> {
  const agent = await startAgent({ command: [agentProgram] });
  const load = new Load(native, ["grpc", `127.0.0.1:${agent.port}`, agent.credentialsDir, agent.token]);
  const pids = [agent.pid, parentOf(agent.pid)].filter((pid) => pid !== process.pid);
  return {
    contender: "ours",
    description: "the built agent under its launcher",
    agent,
    load,
    // The agent's own children are commands: until it has become one, a child shares, and seems to have, all its memory.
    pids: () => pids,
    [Symbol.asyncDispose]: async () => {
      load.close();
      await agent[Symbol.asyncDispose]();
    },
  };
}
