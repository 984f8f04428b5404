import type { RunningAgent } from "../../test/fixtures/agent.ts";
import type { Random } from "./fuzz.ts";

/** What an attack works with. */
export interface Target {
  readonly agent: RunningAgent;
  readonly random: Random;
  /** A folder that may be filled; it goes afterwards. */
  readonly scratch: string;
  /** About so many things to send. */
  readonly inputs: number;
}

/** One way to abuse an agent. */
export interface Attack {
  readonly name: string;
  /** Its share of the inputs: `weight` times those of one unit. */
  readonly weight: number;
  /** Resolves with what it sent, once nothing of its own is open. Throws where the agent did what it must not. */
  run(target: Target): Promise<number>;
}
