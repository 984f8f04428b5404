import { messageOf } from "../../src/shared/errors.ts";
import { type Outcome, type Suite, Unavailable } from "./suite.ts";

/** Verdict on a suite's run. */
export interface Verdict {
  readonly name: string;
  /** Undefined: the suite did not run. */
  readonly version: string | undefined;
  readonly passed: number;
  /** Known differences that occurred, by case. */
  readonly differences: Readonly<Record<string, string>>;
  /** Each counts as a failed case. */
  readonly problems: readonly string[];
  /** Why it was left out; undefined: it ran, or should have. */
  readonly skipped: string | undefined;
  readonly durationMs: number;
}

/**
 * Runs a suite and judges the outcome.
 *
 * @param required it has to run: that it cannot be installed is a failure
 */
export async function judge(suite: Suite, required: boolean): Promise<Verdict> {
  const began = performance.now();
  const nothing = {
    name: suite.name,
    version: undefined,
    passed: 0,
    differences: {},
    problems: [],
    skipped: undefined,
  };
  try {
    const outcome = await suite.run();
    return { ...nothing, ...judgement(suite, outcome), durationMs: performance.now() - began };
  } catch (error) {
    const durationMs = performance.now() - began;
    if (error instanceof Unavailable && !required) return { ...nothing, skipped: error.message, durationMs };
    const what = error instanceof Unavailable ? "cannot be installed" : "did not run to its end";
    return { ...nothing, problems: [`${suite.name} ${what}: ${messageOf(error)}`], durationMs };
  }
}

function judgement(
  suite: Suite,
  { version, cases, failures }: Outcome,
): Pick<Verdict, "version" | "passed" | "differences" | "problems"> {
  const known = failures.filter(({ name }) => Object.hasOwn(suite.differences, name));
  const unknown = failures.filter((failure) => !known.includes(failure));
  const differing = new Set(known.map(({ name }) => name));
  const needless = Object.keys(suite.differences).filter((name) => !differing.has(name));
  return {
    version,
    passed: cases - failures.length,
    differences: Object.fromEntries(known.map(({ name }) => [name, suite.differences[name] ?? ""])),
    problems: [
      ...unknown.map(({ name, problem }) => `${suite.name}: ${name}: ${problem}`),
      ...needless.map((name) => `${suite.name}: ${name}: passes, but is listed as a known difference`),
      ...(cases < suite.cases ? [`${suite.name}: ${cases} cases ran, of ${suite.cases}`] : []),
    ],
  };
}
