import type { Case, Outcome } from "./events.ts";

/** The closing words of a run. */
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
