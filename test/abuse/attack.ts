import { NODE_FLAGS } from "../../scripts/package/node.ts";
import { AGENT_COMMAND, type AgentCommand, type RunningAgent, SOURCES_COMMAND } from "../fixtures/agent.ts";
import type { Random } from "../fixtures/seeded-random.ts";

const [NODE, ...SOURCES] = SOURCES_COMMAND;
/**
 * The agent under attack. From the sources, it runs with the flags of the built agent: with V8's default young
 * generation, the agent takes 35 to 45 MiB more memory under these attacks.
 */
export const ATTACKED_COMMAND: AgentCommand =
  AGENT_COMMAND === SOURCES_COMMAND ? [NODE, ...NODE_FLAGS, ...SOURCES] : AGENT_COMMAND;

/** The target of an attack. */
export interface Target {
  readonly agent: RunningAgent;
  readonly random: Random;
  /** A scratch directory; the caller removes it. */
  readonly scratch: string;
  /** Approximate number of inputs to send. */
  readonly inputs: number;
  /** Runs `work` while the Health calls beside the attack pause, because they cost the agent something too. */
  quietly(work: () => Promise<void>): Promise<void>;
}

/** Result of an attack. */
export interface Outcome {
  /** Inputs that it has sent. */
  readonly inputs: number;
  /** Figures that it has checked. */
  readonly measured: string;
}

/** An attack. */
export interface Attack {
  readonly name: string;
  /** Its share of the inputs: `weight` times those of one unit. */
  readonly weight: number;
  /** Resolves once it has closed everything, at least with the number of inputs. Throws if the agent misbehaved. */
  run(target: Target): Promise<number | Outcome>;
}
