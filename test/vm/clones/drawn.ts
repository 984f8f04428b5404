import assert from "node:assert/strict";
import type { Machine } from "../harness/machine.ts";
import { ask, pass } from "../harness/oracle.ts";

const DRAWS_LIMIT_MS = 180_000;
/** Most draws of a thread in one of the oracle's answers. */
const TOLD = 4_096;
/** The guest's own time in which a frozen thread must not draw, and another one has drawn. */
const LOOK_MS = 1_000;

/** One draw of one of the drawer's threads (test/vm/guest/drawer.c). */
export interface Draw {
  readonly thread: number;
  /** Number of the thread's draws before. */
  readonly number: number;
  readonly kernel: string;
  /** "0" where the kernel has no vDSO getrandom. */
  readonly vdso: string;
  /** From a generator of the process, seeded at its start. */
  readonly seeded: string;
  readonly clockNs: bigint;
}

/** The kinds of random numbers. */
export const KINDS = ["kernel", "vdso", "seeded"] as const;
export type Kind = (typeof KINDS)[number];

/** Number of draws of each thread. With "halt" it makes no more. */
export async function made(machine: Machine, question: "made" | "halt" = "made"): Promise<number[]> {
  const [line = ""] = await ask(machine.oraclePort, [question]);
  const counts = line.split(" ").map(Number);
  assert.equal(counts.length, 8, `the drawer has not begun: ${line}`);
  return counts;
}

/** Resolves once every thread has made that many draws, given for each. */
export async function madeAtLeast(machine: Machine, wanted: readonly number[]): Promise<void> {
  for (;;) {
    const now = await made(machine);
    if (now.every((count, thread) => count >= (wanted[thread] ?? 0))) return;
  }
}

/** Draws of each thread from a given number on; 4,096 of each at most. */
export async function draws(machine: Machine, from: readonly number[]): Promise<Draw[]> {
  const question = `draws ${from.join(" ")}` as const;
  const [line = ""] = await ask(machine.oraclePort, [question], DRAWS_LIMIT_MS, DRAWS_LIMIT_MS);
  return line
    .split(" ")
    .filter(Boolean)
    .map((record) => {
      const [thread = "", number = "", kernel = "", vdso = "", seeded = "", clock = ""] = record.split(":");
      return {
        thread: Number(thread),
        number: Number.parseInt(number, 16),
        kernel,
        vdso,
        seeded,
        clockNs: BigInt(`0x${clock}`),
      };
    });
}

/** Resolves once the guest has run for another second of its own time. */
export function livesOn(machine: Machine): Promise<void> {
  return pass(machine, LOOK_MS);
}

/** Count of numbers of that kind in both. */
export function inBoth(kind: Kind, one: readonly Draw[], other: readonly Draw[]): number {
  const seen = new Set(one.map((draw) => draw[kind]));
  return other.filter((draw) => draw[kind] !== "0" && seen.has(draw[kind])).length;
}

/**
 * The first draws of two clones since their snapshot. Before it they have drawn the same at the same time; after it no
 * two guests run alike to the nanosecond.
 *
 * @param from how many each thread had made some time before the snapshot
 */
export async function sinceSnapshot(
  pair: readonly [Machine, Machine],
  from: readonly number[],
): Promise<readonly [Draw[], Draw[]]> {
  const key = ({ thread, number, clockNs }: Draw): string => `${thread} ${number} ${clockNs}`;
  for (let next = from; ; next = next.map((number) => number + TOLD)) {
    const [one, other] = [await draws(pair[0], next), await draws(pair[1], next)];
    const [ofOne, ofOther] = [new Set(one.map(key)), new Set(other.map(key))];
    const since = [
      one.filter((draw) => !ofOther.has(key(draw))),
      other.filter((draw) => !ofOne.has(key(draw))),
    ] as const;
    if (since.some((drawn) => drawn.length > 0) || one.length + other.length === 0) return since;
  }
}
