import type { GuestFacts } from "../domain/index.ts";

/** One thing that the agent uses where a guest has it. */
export interface Check {
  readonly name: string;
  /** False: the agent works without it, but not everything that it does does. */
  readonly ok: boolean;
  /** What is there, or the kernel's refusal. */
  readonly found: string;
  /** What follows from it and, where something is missing, what to do. */
  readonly meaning: string;
}

/** Looks at one thing. */
export type CheckOf = (facts: GuestFacts) => Check;
