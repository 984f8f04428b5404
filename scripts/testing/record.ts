/** How one test of a file ended. Suites are not counted. */
export type TestRecord =
  | { readonly title: string; readonly verdict: "passed" }
  | { readonly title: string; readonly verdict: "failed" }
  | { readonly title: string; readonly verdict: "skipped"; readonly reason: string };

/** How a test file ended. */
export interface FileOutcome {
  /** Path from the working directory. */
  readonly file: string;
  readonly tests: readonly TestRecord[];
  /** What went wrong with the file beyond its tests; empty when nothing did. Each counts as a failed test. */
  readonly problems: readonly string[];
  /** What the spec reporter and the tests printed. */
  readonly output: string;
  readonly durationMs: number;
}
