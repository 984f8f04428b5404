import type { TestEvent } from "node:test/reporters";

/** One case of a suite. */
export interface Case {
  readonly suite: string;
  readonly title: string;
  readonly outcome: "passed" | "FAILED" | "SKIPPED";
  readonly durationMs: number;
}

/** The end of a run. */
export interface Summary {
  readonly lines: readonly string[];
  readonly succeeded: boolean;
}

function lineOf({ outcome, durationMs, suite, title }: Case): string {
  return `${outcome}  ${(durationMs / 1000).toFixed(1)} s  ${suite}: ${title}`;
}

/** The cases that did not pass, and the counts. */
export function summarize(cases: readonly Case[], seconds: number): Summary {
  const others = cases.filter(({ outcome }) => outcome !== "passed");
  const failed = others.filter(({ outcome }) => outcome === "FAILED").length;
  const passed = cases.length - others.length;
  const counts = `${passed} passed, ${failed} failed, ${others.length - failed} skipped`;
  return {
    lines: ["", ...others.map(lineOf), `${Math.round(seconds)} s`, counts],
    succeeded: others.length === 0 && passed > 0,
  };
}

/** Prints each case when it has ended; resolves with all of them once the run is over. */
export async function record(events: AsyncIterable<TestEvent>): Promise<Case[]> {
  const cases: Case[] = [];
  // Events come file by file, even if files run at once: a suite's start, its cases, its end.
  let suite = "";
  for await (const event of events) {
    if (event.type === "test:start" && event.data.nesting === 0) suite = event.data.name;
    if (event.type === "test:diagnostic" && event.data.nesting > 0) console.log(`    ${event.data.message}`);
    if (event.type !== "test:pass" && event.type !== "test:fail") continue;
    const { name: title, details, skip } = event.data;
    if (event.type === "test:fail") {
      const { error } = event.data.details;
      console.log(`${error.stack ?? ""}\n${String(error.cause)}`);
    }
    // A suite's failure outside its cases, such as a file that did not load.
    const isOfCases = event.type === "test:pass" || cases.some((each) => each.suite === title);
    if (details.type === "suite" && isOfCases) continue;
    const passed = skip === undefined ? "passed" : "SKIPPED";
    const outcome = event.type === "test:fail" ? "FAILED" : passed;
    const ended: Case = { suite, title, outcome, durationMs: details.duration_ms };
    cases.push(ended);
    console.log(lineOf(ended));
  }
  return cases;
}
