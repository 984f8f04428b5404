/** What the test runner tells, as far as it is used here; Node's types leave it open. */
export interface RunEvent {
  readonly type: string;
  readonly data: {
    readonly name: string;
    readonly nesting: number;
    readonly message: string;
    readonly skip?: boolean | string;
    readonly details: {
      readonly duration_ms: number;
      readonly error: Error;
      readonly type?: "suite" | "test";
    };
  };
}

/** How a case ended. */
export type Outcome = "passed" | "failed" | "skipped";

/** One case of a suite. */
export interface Case {
  readonly suite: string;
  readonly title: string;
  readonly outcome: Outcome;
  readonly durationMs: number;
}

function outcomeOf({ type, data }: RunEvent): Outcome {
  if (type === "test:fail") return "failed";
  return data.skip === undefined ? "passed" : "skipped";
}

/** Prints what happens as it happens; resolves with all cases once the run is over. */
export async function record(events: AsyncIterable<RunEvent>): Promise<Case[]> {
  const cases: Case[] = [];
  // Files are told one after the other, whatever runs at once; a suite's beginning before its cases, its end after them.
  let suite = "";
  for await (const event of events) {
    const { type, data } = event;
    if (type === "test:start" && data.nesting === 0) suite = data.name;
    if (type === "test:diagnostic" && data.nesting > 0) console.log(`    ${data.message}`);
    if (type !== "test:pass" && type !== "test:fail") continue;
    const { name: title, details } = data;
    if (type === "test:fail") console.log(`${details.error.stack ?? ""}\n${String(details.error.cause)}`);
    // What went wrong with a suite that is not in its cases: a file that did not load, for one.
    if (details.type === "suite" && (type === "test:pass" || cases.some((each) => each.suite === title))) continue;
    const outcome = outcomeOf(event);
    cases.push({ suite, title, outcome, durationMs: details.duration_ms });
    console.log(`${outcome}  ${(details.duration_ms / 1000).toFixed(1)} s  ${suite}: ${title}`);
  }
  return cases;
}
