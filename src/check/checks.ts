import type { GuestFacts } from "../domain/index.ts";
import type { Check, CheckOf } from "./check.ts";
import { account, capabilities, seccomp } from "./privileges.ts";
import { accounts, nullDevice, proc, randomDevice, terminal } from "./image.ts";
import { cgroups, kernel, systemCalls } from "./kernel.ts";
import { memory, openFiles } from "./limits.ts";
import { clock, entropy, reseed } from "./restore.ts";

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
