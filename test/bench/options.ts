import { parseArgs } from "node:util";
import { UsageError } from "../../scripts/machine/script.ts";
import { type Group, GROUPS } from "./groups.ts";

/** Help text. */
export const USAGE: string = `usage: npm run bench [-- OPTION...]
  --quick            smaller loads: about a minute instead of a quarter of an hour
  --rows=GROUP,...   only these: ${GROUPS.join(", ")}
  --agent=PROGRAM    measure this guest-agent instead of the one in dist
  --json FILE        all rows and samples (docs/performance.json is that of the last complete run)
  --publish          measure nothing: make the figures of README.md and docs from docs/performance.json
  --guard            compare ratios with the recorded ones and fail on a clear loss
  --record           record the ratios`;

/** Groups for the guard: quick, with steady ratios. */
const GUARDED_GROUPS: readonly Group[] = ["health", "exec", "streams", "files"];

function groupsOf(rows: string | undefined, guards: boolean): ReadonlySet<Group> {
  if (rows === undefined) return new Set(guards ? GUARDED_GROUPS : GROUPS);
  const names = rows.split(",");
  const unknown = names.find((name) => !GROUPS.some((group) => group === name));
  if (unknown !== undefined) throw new UsageError(`--rows: there is no group "${unknown}"`);
  return new Set(GROUPS.filter((group) => names.includes(group)));
}

const FLAGS = {
  quick: { type: "boolean", default: false },
  rows: { type: "string" },
  agent: { type: "string" },
  json: { type: "string" },
  publish: { type: "boolean", default: false },
  guard: { type: "boolean", default: false },
  record: { type: "boolean", default: false },
} as const;

/** The parsed command line. */
export type Options = ReturnType<typeof parseArgs<{ options: typeof FLAGS }>>["values"] & {
  readonly groups: ReadonlySet<Group>;
};

/** Parses the command line; throws messages for the user. */
export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({ args: [...args], options: FLAGS });
  return { ...values, groups: groupsOf(values.rows, values.guard || values.record) };
}
