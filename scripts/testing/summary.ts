/**
 * Accepted reasons to skip a test in CI. Each means that the machine or kernel lacks something that cannot be
 * installed. In CI, any other skipped test is a failure.
 */
const ACCEPTED_SKIPS: readonly RegExp[] = [
  /^needs KVM\b/,
  /^needs an arm64 machine\b/,
  /^needs Linux \d/,
  /^needs IPv6\b/,
  /^needs autofs\b/,
  /^needs a disk\b/,
  /^needs cargo\b/,
  /^needs (?:socat|sshd)\b/,
];

/** The summary of a run. */
export interface Summary {
  readonly lines: readonly string[];
  readonly succeeded: boolean;
}

/** Counts the tests, but not the suites, of all files. Lists failed and skipped tests with their reasons. */
export function summarize(outcomes: readonly FileOutcome[], strictSkips: boolean): Summary {
  let passed = 0;
  const failed: string[] = [];
  const skipped: string[] = [];
  for (const { file, tests, problems } of outcomes) {
    for (const test of tests) {
      const where = `${file}: ${test.title}`;
      if (test.verdict === "passed") passed++;
      else if (test.verdict === "failed") failed.push(where);
      else if (strictSkips && !ACCEPTED_SKIPS.some((accepted) => accepted.test(test.reason))) {
        failed.push(`${where} (skipped, ${test.reason}: not accepted in CI)`);
      } else skipped.push(`${where} (${test.reason})`);
    }
    failed.push(...problems.map((problem) => `${file}: ${problem}`));
  }
  if (passed + failed.length + skipped.length === 0) failed.push("no test ran");
  return {
    lines: [
      ...(skipped.length > 0 ? ["SKIPPED", ...skipped.map((line) => `  ${line}`)] : []),
      ...(failed.length > 0 ? ["FAILED", ...failed.map((line) => `  ${line}`)] : []),
      `${passed} passed, ${failed.length} failed, ${skipped.length} skipped`,
    ],
    succeeded: failed.length === 0,
  };
}

/** Result of one test of a file. Suites are not recorded. */
export type TestRecord =
  | { readonly title: string; readonly verdict: "passed" }
  | { readonly title: string; readonly verdict: "failed" }
  | { readonly title: string; readonly verdict: "skipped"; readonly reason: string };

/** One line of a file's events: a test that has ended, the name of a test that begins, or the end of the file. */
export type TestLine = TestRecord | { readonly begun: string } | "end";

/** Result of a test file. */
export interface FileOutcome {
  /** Path relative to the working directory. */
  readonly file: string;
  readonly tests: readonly TestRecord[];
  /** Failures of the file that belong to none of its tests; each counts as a failed test. */
  readonly problems: readonly string[];
  /** What the spec reporter and the tests printed. */
  readonly output: string;
  readonly durationMs: number;
}
