import type { Bench } from "./bench.ts";
import type { Row } from "./row.ts";
import { execRows, healthRows } from "./rows/calls.ts";
import { fileRows } from "./rows/files.ts";
import { firstCallRows, firstExecRows } from "./rows/first-execs.ts";
import { idleRows, memoryRows, snapshotRows } from "./rows/footprint.ts";
import { resumeRows } from "./rows/resume.ts";
import { streamRows } from "./rows/streams.ts";
import { treeRows } from "./rows/trees.ts";
import { tunnelRows } from "./rows/tunnels.ts";
import { startupRows } from "./startup/rows.ts";

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
  | "startup"
  | "memory"
  | "snapshot"
  | "resume";

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
  startup: async (bench) => [...(await startupRows(bench)), ...(await firstCallRows(bench))],
  memory: memoryRows,
  snapshot: snapshotRows,
  resume: resumeRows,
};

/** The groups, in the order in which they are measured. */
export const GROUPS: readonly Group[] = Object.keys(MEASURES) as Group[];
