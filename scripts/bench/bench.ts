import { messageOf } from "../../src/domain/index.ts";
import type { Running } from "./contender.ts";
import type { Job } from "./load.ts";
import { measure, type Measurement } from "./meter.ts";
import type { Contender, Samples } from "./row.ts";
import type { Scale } from "./scale.ts";

/** The context of every group of rows. */
export interface Bench {
  readonly contenders: ReadonlyMap<Contender, Running>;
  readonly scale: Scale;
  /** On a file system in memory if there is one: the disk should not count. */
  readonly folder: string;
  readonly native: string;
  readonly agentProgram: string;
  /** Peak anonymous memory in bytes, by the name of the load. */
  readonly peaks: Map<string, Map<Contender, number>>;
  /** Anonymous memory after the start, before any load. */
  readonly idleBytes: ReadonlyMap<Contender, number>;
  readonly say: (text: string) => void;
}

/** The measurements of one job, by contender and round. */
export type Runs = ReadonlyMap<Contender, readonly Measurement[]>;

/** How to repeat a job. */
export interface Repetition {
  /** Name of the load; its memory peaks are kept under it. */
  readonly name: string;
  readonly contenders: readonly Contender[];
  /** Default: the scale's. */
  readonly rounds?: number;
}

/** The job for a contender; undefined: it cannot do it. */
export type JobFor = (contender: Contender) => Job;

/**
 * Runs the job of each contender in turn, round by round, so that whatever the machine does meanwhile strikes all of
 * them. The first of a round is another one each time. A peer that fails is left out from there on.
 */
export async function sideBySide(bench: Bench, repetition: Repetition, jobFor: JobFor): Promise<Runs> {
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
        const measurement = await measure(running, jobFor(contender));
        runs.set(contender, [...(runs.get(contender) ?? []), measurement]);
        notePeak(bench, name, contender, measurement.peakBytes);
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

function notePeak(bench: Bench, name: string, contender: Contender, bytes: number): void {
  const peaks = bench.peaks.get(name) ?? new Map<Contender, number>();
  peaks.set(contender, Math.max(peaks.get(contender) ?? 0, bytes));
  bench.peaks.set(name, peaks);
}

/** One figure of each measurement. */
export function samplesOf(runs: Runs, pick: (measurement: Measurement) => number | undefined): Samples {
  const entries = [...runs].map(
    ([contender, measurements]) => [contender, measurements.map(pick).filter((value) => value !== undefined)] as const,
  );
  return Object.fromEntries(entries.filter(([, values]) => values.length > 0));
}

/** Enough calls to warm up every server. */
const WARM_UP_CALLS = 1_000;

/** Warm-up calls to all contenders. */
export async function warmUp(bench: Bench): Promise<void> {
  bench.say("warming up");
  for (const { load } of bench.contenders.values()) {
    await load.run({ kind: "ping", count: WARM_UP_CALLS });
  }
}

/** A warm-up job. A contender that fails it is skipped from then on. */
export async function uncounted(bench: Bench, contenders: readonly Contender[], job: Job): Promise<void> {
  for (const contender of contenders) {
    try {
      await bench.contenders.get(contender)?.load.run(job);
    } catch (error) {
      if (contender === "ours") throw error;
    }
  }
}
