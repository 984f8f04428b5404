import { parseArgs } from "node:util";
import { UsageError } from "../machine/script.ts";

/**
 * The groups of rows, in the order in which they are measured. Idle comes right after the loads: from growth on, whatever
 * is measured has a server of its own.
 */
export const GROUPS = [
  "health",
  "exec",
  "streams",
  "files",
  "idle",
  "growth",
  "startup",
  "size",
  "duties",
  "memory",
  "snapshot",
] as const;

/** Name of a group of rows. */
export type Group = (typeof GROUPS)[number];

/** The parsed command line. */
export interface Options {
  /** A smaller load: a minute or so. */
  readonly quick: boolean;
  readonly groups: ReadonlySet<Group>;
  /** The agent's program instead of the built one. */
  readonly agentProgram: string | undefined;
  readonly jsonFile: string | undefined;
  readonly svgFile: string | undefined;
  readonly growthSvgFile: string | undefined;
  readonly markdownFile: string | undefined;
  readonly summaryFile: string | undefined;
  /** Compare with the recorded ratios and fail on a clear loss. */
  readonly guard: boolean;
  /** Record the ratios. */
  readonly record: boolean;
}

/** Help text. */
export const USAGE: string = `usage: npm run bench [-- OPTION...]
  --quick            smaller loads: about a minute instead of a quarter of an hour
  --rows=GROUP,...   only these: ${GROUPS.join(", ")}
  --agent=PROGRAM    measure this guest-agent instead of the one in dist
  --json FILE        all samples, as JSON
  --svg FILE         a plot of the agent beside its peers
  --growth-svg FILE  a plot of how cost grows with commands at once and with data
  --markdown FILE    the table, as Markdown; between the marks of a file that has them (docs/performance.md)
  --summary FILE     the rows that tell most, in the same way (README.md)
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

/** Parses the command line; throws messages for the user. */
export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: "boolean", default: false },
      rows: { type: "string" },
      agent: { type: "string" },
      json: { type: "string" },
      svg: { type: "string" },
      "growth-svg": { type: "string" },
      markdown: { type: "string" },
      summary: { type: "string" },
      guard: { type: "boolean", default: false },
      record: { type: "boolean", default: false },
    },
  });
  return {
    quick: values.quick,
    groups: groupsOf(values.rows, values.guard || values.record),
    agentProgram: values.agent,
    jsonFile: values.json,
    svgFile: values.svg,
    growthSvgFile: values["growth-svg"],
    markdownFile: values.markdown,
    summaryFile: values.summary,
    guard: values.guard,
    record: values.record,
  };
}
