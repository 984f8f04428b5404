import type { Verdict } from "./verdict.ts";

/** The end of a run. */
export interface Table {
  readonly lines: readonly string[];
  readonly succeeded: boolean;
}

/** A line for each suite, its known differences with their reasons, and the counts of all cases. */
export function tableOf(verdicts: readonly Verdict[]): Table {
  const rows = [
    ["suite", "version", "passed", "failed", "differences", "seconds"],
    Array<string>(6).fill("---"),
    ...verdicts.map(({ name, version, passed, problems, differences, skipped, durationMs }) => [
      name,
      skipped === undefined ? (version ?? "-") : "SKIPPED",
      String(passed),
      String(problems.length),
      String(Object.keys(differences).length),
      (durationMs / 1000).toFixed(0),
    ]),
  ];
  const sum = (count: (verdict: Verdict) => number): number => verdicts.reduce((all, each) => all + count(each), 0);
  const skipped = verdicts.filter((verdict) => verdict.skipped !== undefined);
  const [passed, failed] = [sum((each) => each.passed), sum(({ problems }) => problems.length)];
  return {
    lines: [
      "",
      ...rows.map((row) => `| ${row.join(" | ")} |`),
      ...verdicts.flatMap(({ name, differences }) =>
        Object.entries(differences).map(([title, reason]) => `  ${name}: ${title}: ${reason}`),
      ),
      ...skipped.map((verdict) => `  ${verdict.name}: ${verdict.skipped}`),
      `${passed} passed, ${failed} failed, ${skipped.length} skipped`,
    ],
    succeeded: failed === 0 && passed + skipped.length > 0,
  };
}
