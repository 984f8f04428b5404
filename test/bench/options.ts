import { parseArgs } from "node:util";
import { UsageError } from "../../scripts/machine/script.ts";
import type { Bench } from "./bench.ts";
import type { Row } from "./row.ts";
import { execRows, healthRows } from "./rows/calls.ts";
import { busyRows } from "./rows/busy.ts";
import { fileRows } from "./rows/files.ts";
import { fleetRows } from "./rows/fleet.ts";
import { declareIdleRows, firstCallRows, firstExecRows } from "./rows/first-execs.ts";
import { idleRows, memoryRows, snapshotRows } from "./rows/footprint.ts";
import { resumeRows } from "./rows/resume.ts";
import { startupRows } from "./rows/startup.ts";
import { streamRows } from "./rows/streams.ts";
import { treeRows } from "./rows/trees.ts";
import { tunnelRows } from "./rows/tunnels.ts";

/** Name of a group of rows. */
export type Group =
  | "health"
  | "exec"
  | "streams"
  | "tunnels"
  | "files"
  | "tree"
  | "idle"
  | "first-execs"
  | "busy"
  | "startup"
  | "memory"
  | "snapshot"
  | "resume"
  | "fleet";

/**
 * How each group of rows is measured, in that order. Idle comes right after the loads: from first-execs on, whatever is
 * measured has a server of its own.
 */
export const MEASURES: Readonly<Record<Group, (bench: Bench) => readonly Row[] | Promise<readonly Row[]>>> = {
  health: healthRows,
  exec: execRows,
  streams: streamRows,
  tunnels: tunnelRows,
  files: fileRows,
  tree: treeRows,
  idle: idleRows,
  "first-execs": firstExecRows,
  busy: busyRows,
  startup: async (bench) => [
    ...(await startupRows(bench)),
    ...(await firstCallRows(bench)),
    ...(await declareIdleRows(bench)),
  ],
  memory: memoryRows,
  snapshot: snapshotRows,
  resume: resumeRows,
  fleet: fleetRows,
};

/** The groups, in the order in which they are measured. */
const GROUPS: readonly Group[] = Object.keys(MEASURES) as Group[];

/** Help text. */
export const USAGE: string = `usage: npm run bench [-- OPTION...]
  --quick            smaller loads: about a minute instead of a quarter of an hour
  --rows=GROUP,...   only these: ${GROUPS.join(", ")}
  --agent=PROGRAM    measure this guest-agent instead of the one in dist
  --publish          all rows, into docs/performance.json, and from it the figures of README.md and docs/performance.md
  --figures          measure nothing: make those figures anew from docs/performance.json
  --json FILE        all rows and samples
  --kvm              only rows of microVMs: commands, resumes and forks, with KVM if this machine has it. Writes
                     kvm.json unless --json names another file
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
  kvm: { type: "boolean", default: false },
  publish: { type: "boolean", default: false },
  figures: { type: "boolean", default: false },
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
  const { publish, quick, rows, agent, guard, record } = values;
  if (publish && (quick || guard || record || rows !== undefined || agent !== undefined))
    throw new UsageError("--publish is for a complete run of the built agent");
  if (values.kvm && (publish || guard || record || values.figures || rows !== undefined))
    throw new UsageError("--kvm measures rows of its own: give it only --quick, --agent or --json");
  return { ...values, groups: groupsOf(values.rows, values.guard || values.record) };
}
