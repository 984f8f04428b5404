/** How one test of a file ended. Suites are not counted. */
export type TestRecord =
  | { readonly title: string; readonly verdict: "passed" }
  | { readonly title: string; readonly verdict: "failed" }
  | { readonly title: string; readonly verdict: "skipped"; readonly reason: string };

/** One line of a file's events: a test that has ended, the name of one that begins, or the end of all. */
export type TestLine = TestRecord | { readonly begun: string } | "end";

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
  /** User and system CPU time of the file and of all that it started and waited for, to 10 ms. */
  readonly cpuMs: number;
}
