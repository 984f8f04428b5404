import type { Machine } from "../harness/machine.ts";
import { ask } from "../harness/oracle.ts";

/** After a thaw of thousands, an emulated guest on a busy host answers late. */
const LIMIT_MS = 600_000;
const ATTEMPT_MS = 60_000;

/** How many rounds each hardship has made (test/vm/guest/hardship.c), by its name. */
export type Beats = ReadonlyMap<string, number>;

/** The present number of rounds, from the guest's memory. */
export async function beatsOf(machine: Machine): Promise<Beats> {
  const [line = ""] = await ask(machine.oraclePort, ["beats"], LIMIT_MS, ATTEMPT_MS);
  const words = line.split(" ");
  const names = words.filter((_, index) => index % 2 === 0);
  return new Map(names.map((name, index) => [name, Number(words[2 * index + 1])]));
}

/** Resolves once each of these has made another round since then. */
export async function allBeat(machine: Machine, since: Beats, names: readonly string[]): Promise<void> {
  for (;;) {
    const now = await beatsOf(machine);
    if (names.every((name) => (now.get(name) ?? 0) > (since.get(name) ?? 0))) return;
  }
}
