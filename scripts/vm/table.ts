import type { TestEvent } from "node:test/reporters";

/** The summary of a run. */
export interface Summary {
  readonly lines: readonly string[];
  readonly succeeded: boolean;
}

const KERNEL = /^Linux (\S+)$/;
const CELL_WIDTH = 9;

function cell(found: Case | undefined): string {
  if (found === undefined) return "".padStart(CELL_WIDTH);
  const seconds = `${(found.durationMs / 1000).toFixed(1)} s`;
  return (found.outcome === "passed" ? seconds : found.outcome.toUpperCase()).padStart(CELL_WIDTH);
}

/** One line a case of every kernel, with a column for each; then the other suites. Then the counts. */
export function summarize(cases: readonly Case[], seconds: number): Summary {
  const kernels = [
    ...new Set(cases.map(({ suite }) => KERNEL.exec(suite)?.[1]).filter((name) => name !== undefined)),
  ].toSorted((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const find = (suite: string, title: string): Case | undefined =>
    cases.find((each) => each.suite === suite && each.title === title);
  const titles = [...new Set(cases.filter(({ suite }) => KERNEL.test(suite)).map(({ title }) => title))];
  const others = cases.filter(({ suite }) => !KERNEL.test(suite));
  const count = (outcome: Outcome): number => cases.filter((each) => each.outcome === outcome).length;
  const [passed, failed, skipped] = [count("passed"), count("failed"), count("skipped")];
  return {
    lines: [
      "",
      ...(titles.length > 0 ? [kernels.map((name) => name.padStart(CELL_WIDTH)).join("")] : []),
      ...titles.map((title) => `${kernels.map((name) => cell(find(`Linux ${name}`, title))).join("")}  ${title}`),
      ...others.map((each) => `${cell(each)}  ${each.suite}: ${each.title}`),
      `${Math.round(seconds)} s`,
      `${passed} passed, ${failed} failed, ${skipped} skipped`,
    ],
    succeeded: failed === 0 && skipped === 0 && passed > 0,
  };
}

/** Result of a case. */
type Outcome = "passed" | "failed" | "skipped";

/** One case of a suite. */
export interface Case {
  readonly suite: string;
  readonly title: string;
  readonly outcome: Outcome;
  readonly durationMs: number;
}

/** Prints what happens as it happens; resolves with all cases once the run is over. */
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
    const passed = skip === undefined ? "passed" : "skipped";
    const outcome = event.type === "test:fail" ? "failed" : passed;
    cases.push({ suite, title, outcome, durationMs: details.duration_ms });
    console.log(`${outcome}  ${(details.duration_ms / 1000).toFixed(1)} s  ${suite}: ${title}`);
  }
  return cases;
}
