import { messageOf } from "../../src/shared/errors.ts";
import { type Suite, Unavailable } from "./suite.ts";

/** Verdict on a suite's run. */
export interface Verdict {
  readonly name: string;
  /** Undefined: the suite did not run. */
  readonly version?: string;
  readonly passed: number;
  /** Each counts as a failed case. */
  readonly problems: readonly string[];
  /** Why it was left out; undefined: it ran, or should have. */
  readonly skipped?: string;
  readonly durationMs: number;
}

/**
 * Runs a suite and judges the outcome.
 *
 * @param required it has to run: that it cannot be installed is a failure
 */
export async function judge(suite: Suite, required: boolean): Promise<Verdict> {
  const { name } = suite;
  const began = performance.now();
  const verdict = (rest: Partial<Verdict>): Verdict => ({
    name,
    passed: 0,
    problems: [],
    durationMs: performance.now() - began,
    ...rest,
  });
  try {
    const { version, cases, failures } = await suite.run();
    const problems = failures.map((failure) => `${name}: ${failure.name}: ${failure.problem}`);
    if (cases < suite.cases) problems.push(`${name}: ${cases} cases ran, of ${suite.cases}`);
    return verdict({ version, passed: cases - failures.length, problems });
  } catch (error) {
    if (error instanceof Unavailable && !required) return verdict({ skipped: error.message });
    const what = error instanceof Unavailable ? "cannot be installed" : "did not run to its end";
    return verdict({ problems: [`${name} ${what}: ${messageOf(error)}`] });
  }
}

/** The end of a run: a line for each suite, and the counts of all cases. */
export function tableOf(verdicts: readonly Verdict[]): { lines: readonly string[]; succeeded: boolean } {
  const rows = verdicts.map(({ name, version, passed, problems, skipped, durationMs }) => [
    name,
    skipped === undefined ? (version ?? "-") : "SKIPPED",
    ...[passed, problems.length, Math.round(durationMs / 1000)].map(String),
  ]);
  const head = ["suite", "version", "passed", "failed", "seconds"];
  const left = verdicts.filter(({ skipped }) => skipped !== undefined);
  const passed = verdicts.reduce((sum, each) => sum + each.passed, 0);
  const failed = verdicts.reduce((sum, { problems }) => sum + problems.length, 0);
  return {
    lines: [
      "",
      ...[head, head.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |`),
      ...left.map(({ name, skipped }) => `  ${name}: ${skipped}`),
      `${passed} passed, ${failed} failed, ${left.length} skipped`,
    ],
    succeeded: failed === 0 && passed + left.length > 0,
  };
}
