import { isDeepStrictEqual } from "node:util";

/** Prints what was asked and what came back, and holds the answers to what they must be. */
export class Report {
  #step = 0;

  /** Begins a step. */
  step(title: string): void {
    this.#step += 1;
    console.log(`\n${this.#step}. ${title}`);
  }

  /** What was asked. */
  asked(what: string): void {
    console.log(`   > ${what}`);
  }

  /** What came back; several lines are indented alike. */
  came(what: string): void {
    for (const line of what.trimEnd().split("\n")) console.log(`     ${line.trimEnd()}`);
  }

  /** Ends the tour with a failure unless the answer is the right one. */
  expect(what: string, actual: unknown, expected: unknown): void {
    if (isDeepStrictEqual(actual, expected)) return;
    throw new Error(`${what}: expected ${JSON.stringify(expected)}, got ${JSON.stringify(actual)}`);
  }
}
