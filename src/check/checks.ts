import type { GuestFacts } from "../domain/index.ts";
import { account, capabilities, seccomp } from "./privileges.ts";
import { accounts, nullDevice, proc, randomDevice, terminal } from "./image.ts";
import { cgroups, kernel, systemCalls } from "./kernel.ts";
import { memory, openFiles } from "./limits.ts";
import { clock, entropy, reseed } from "./restore.ts";

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

const CHECKS: readonly CheckOf[] = [
  kernel,
  systemCalls,
  account,
  capabilities,
  seccomp,
  proc,
  nullDevice,
  terminal,
  accounts,
  cgroups,
  memory,
  openFiles,
  randomDevice,
  entropy,
  reseed,
  clock,
];

/** Judges what was found out about a guest. */
export function checkGuest(facts: GuestFacts): Check[] {
  return CHECKS.map((check) => check(facts));
}
