import type { FileOutcome } from "./record.ts";

/**
 * Reasons to skip a test that even continuous integration accepts: its machine or kernel lacks something that nobody can
 * install. Everything else can be, so there a skipped test is a failure.
 */
const ACCEPTED_SKIPS: readonly RegExp[] = [
  /^needs KVM\b/,
  /^needs an arm64 machine\b/,
  /^needs Linux \d/,
  /^needs IPv6\b/,
  /^needs FUSE\b/,
  /^needs a cgroup2 hierarchy\b/,
  /^needs cargo\b/,
];

/** The closing words of a run. */
export interface Summary {
  readonly lines: readonly string[];
  readonly succeeded: boolean;
}

interface Skipped {
  readonly where: string;
  readonly reason: string;
}

/** Counts tests (not suites) over all files and says which failed and which were skipped, with the reasons. */
export function summarize(outcomes: readonly FileOutcome[], strictSkips: boolean): Summary {
  let passed = 0;
  const failed: string[] = [];
  const skipped: Skipped[] = [];
  for (const { file, tests, problems } of outcomes) {
    for (const test of tests) {
      const where = `${file}: ${test.title}`;
      if (test.verdict === "passed") passed++;
      else if (test.verdict === "failed") failed.push(where);
      else if (strictSkips && !ACCEPTED_SKIPS.some((accepted) => accepted.test(test.reason))) {
        failed.push(`${where} (skipped, ${test.reason}: not accepted in CI)`);
      } else skipped.push({ where, reason: test.reason });
    }
    failed.push(...problems.map((problem) => `${file}: ${problem}`));
  }
  if (passed + failed.length + skipped.length === 0) failed.push("no test ran");
  return {
    lines: [
      ...(skipped.length > 0 ? ["SKIPPED", ...skipped.map(({ where, reason }) => `  ${where} (${reason})`)] : []),
      ...(failed.length > 0 ? ["FAILED", ...failed.map((line) => `  ${line}`)] : []),
      `${passed} passed, ${failed.length} failed, ${skipped.length} skipped`,
    ],
    succeeded: failed.length === 0,
  };
}
