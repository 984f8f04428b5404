import type { RunningAgent } from "../fixtures/agent.ts";
import type { Random } from "../fixtures/seeded-random.ts";

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
