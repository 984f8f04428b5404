import { dirname, join } from "node:path";
import { makeGuestctl } from "../../scripts/package/bundle.ts";
import { messageOf } from "../../src/shared/errors.ts";
import { provideQemu, provideTools } from "../vm/harness/provision.ts";
import { type Job, measure, type Measurement, type Work } from "./contender.ts";
import type { Field, Programs } from "./field.ts";
import type { Contender } from "./row.ts";
import type { Scale } from "./scale.ts";

const ROOT = join(import.meta.dirname, "../..");

/** The context of every group of rows. */
export interface Bench extends Programs, Pick<Field, "contenders" | "idleBytes" | "directory"> {
  readonly scale: Scale;
  /** Peak anonymous memory in bytes over all loads. */
  readonly peaks: Map<Contender, number>;
}

/** The measurements of one piece of work, by contender and round. */
export type Runs = ReadonlyMap<Contender, readonly Measurement[]>;

/** How to repeat work. */
export interface Repetition {
  /** Name of the load. */
  readonly name: string;
  readonly contenders: readonly Contender[];
  /** Default: the scale's. */
  readonly rounds?: number;
}

/**
 * Does the work of each contender in turn, round by round, so that other work of the machine slows all of them equally.
 * Each round begins with another one. A peer that fails is left out from then on.
 */
export async function sideBySide(
  bench: Bench,
  repetition: Repetition,
  workFor: (contender: Contender) => Work,
): Promise<Runs> {
  const { name, rounds = bench.scale.rounds } = repetition;
  const runs = new Map<Contender, Measurement[]>();
  const present = repetition.contenders.filter((contender) => bench.contenders.has(contender));
  bench.say(name);
  for (let round = 0; round < rounds; round++) {
    const first = round % present.length;
    for (const contender of [...present.slice(first), ...present.slice(0, first)]) {
      const running = bench.contenders.get(contender);
      if (running === undefined) continue;
      try {
        const measurement = await measure(running, workFor(contender));
        runs.getOrInsert(contender, []).push(measurement);
        bench.peaks.set(contender, Math.max(bench.peaks.get(contender) ?? 0, measurement.peakBytes));
      } catch (error) {
        if (contender === "ours") throw error;
        bench.say(`${contender} is left out of "${name}": ${messageOf(error)}`);
        runs.delete(contender);
        present.splice(present.indexOf(contender), 1);
      }
    }
  }
  return runs;
}

/** Whether there can be microVMs for these rows: says so otherwise. */
export function canBoot({ say }: Programs, rows: string): boolean {
  say(rows);
  const problem = provideQemu();
  if (problem === undefined) provideTools();
  else say(`not measured: ${problem}`);
  return problem === undefined;
}

/** Lets all contenders do a job without measuring it. A failure counts only when the job is measured. */
export async function warmUp({ contenders }: Bench, job: Job): Promise<void> {
  for (const [contender, { load }] of contenders) {
    try {
      await load?.run(job);
    } catch (error) {
      if (contender === "ours") throw error;
    }
  }
}

/** Makes guestctl, and a PATH for it: it runs with the Node there, which is here the project's. */
export async function makeTool({ directory }: Bench): Promise<{ readonly guestctl: string; readonly PATH: string }> {
  const made = join(directory, "guestctl");
  await makeGuestctl(ROOT, made);
  return { guestctl: join(made, "guestctl"), PATH: `${dirname(process.execPath)}:${process.env["PATH"] ?? ""}` };
}
