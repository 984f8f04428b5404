import { type RunningAgent, startAgent } from "../../../test/fixtures/agent.ts";
import type { Running } from "../contender.ts";
import { Load } from "../load.ts";
import { childrenOf } from "../proc.ts";

/** The built agent under its launcher. */
export interface MeasuredAgent extends Running {
  readonly agent: RunningAgent;
}

/** Starts the built agent, without a workload, and dials it. */
export async function startBuiltAgent(native: string, agentProgram: string): Promise<MeasuredAgent> {
  const agent = await startAgent({ command: [agentProgram] });
  const load = new Load(native, ["grpc", `127.0.0.1:${agent.port}`, agent.credentialsDir, agent.token]);
  return {
    contender: "ours",
    description: "the built agent under its launcher",
    agent,
    load,
    // The launcher's one child is the agent; what that starts are commands.
    pids: () => [agent.pid, ...childrenOf(agent.pid)],
    [Symbol.asyncDispose]: async () => {
      load.close();
      await agent[Symbol.asyncDispose]();
    },
  };
}
