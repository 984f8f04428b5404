import assert from "node:assert/strict";
import { test } from "node:test";

/** Result of a suite that others wrote. */
export interface Outcome {
  /** How many cases ran, those that failed included. */
  readonly cases: number;
  /** The cases that failed, each with its name and what came of it. */
  readonly failures: readonly string[];
}

/**
 * Defines the test that a suite which others wrote runs whole, and that no case of it fails.
 *
 * @param cases how many it has at least
 * @param run resolves with a text where this machine cannot have the suite: what is missing
 */
export function foreignSuite(title: string, cases: number, run: () => Promise<Outcome | string>): void {
  test(`${title} passes all of its ${cases} cases`, async (t) => {
    const outcome = await run();
    if (typeof outcome === "string") {
      t.skip(outcome);
      return;
    }
    t.diagnostic(`${outcome.cases} cases`);
    assert.deepEqual(outcome.failures, []);
    assert.ok(outcome.cases >= cases, `${outcome.cases} cases ran, of ${cases}`);
  });
}
