import { isDeepStrictEqual } from "node:util";

/** Prints requests and answers, and compares the answers with the expected ones. */
export class Report {
  #step = 0;

  /** Begins a step. */
  step(title: string): void {
    this.#step += 1;
    console.log(`\n${this.#step}. ${title}`);
  }

  /** Prints a request. */
  asked(what: string): void {
    console.log(`   > ${what}`);
  }

  /** Prints an answer; indents all its lines. */
  came(what: string): void {
    for (const line of what.trimEnd().split("\n")) console.log(`     ${line.trimEnd()}`);
  }

  /** Ends the tour with a failure unless the answer is as expected. */
  expect(what: string, actual: unknown, expected: unknown): void {
    if (isDeepStrictEqual(actual, expected)) return;
    throw new Error(`${what}: expected ${JSON.stringify(expected)}, got ${JSON.stringify(actual)}`);
  }
}
