import type { RunningAgent } from "../../test/fixtures/agent.ts";
import type { Random } from "../../test/fixtures/seeded-random.ts";

/** The target of an attack. */
export interface Target {
  readonly agent: RunningAgent;
  readonly random: Random;
  /** A scratch folder; the caller removes it. */
  readonly scratch: string;
  /** Approximate number of inputs to send. */
  readonly inputs: number;
}

/** An attack. */
export interface Attack {
  readonly name: string;
  /** Its share of the inputs: `weight` times those of one unit. */
  readonly weight: number;
  /** Resolves with the number of inputs, once it has closed everything. Throws if the agent misbehaved. */
  run(target: Target): Promise<number>;
}
