import type { Bench } from "./bench.ts";
import type { Group } from "./options.ts";
import type { Row } from "./row.ts";
import { dutiesRows } from "./rows/duties.ts";
import { execRows } from "./rows/exec.ts";
import { fileRows } from "./rows/files.ts";
import { growthRows } from "./rows/growth.ts";
import { healthRows } from "./rows/health.ts";
import { idleRows } from "./rows/idle.ts";
import { memoryRows } from "./rows/memory.ts";
import { sizeRows } from "./rows/size.ts";
import { snapshotRows } from "./rows/snapshot.ts";
import { streamRows } from "./rows/streams.ts";
import { coldStartupRows, startupRows } from "./startup/index.ts";

/** How each group of rows is measured. */
export const MEASURES: Readonly<Record<Group, (bench: Bench) => readonly Row[] | Promise<readonly Row[]>>> = {
  health: healthRows,
  exec: execRows,
  streams: streamRows,
  files: fileRows,
  growth: growthRows,
  startup: async ({ agentProgram, scale, say }) => [
    ...(await startupRows({ agentProgram, starts: scale.starts, say })),
    ...(await coldStartupRows({ agentProgram, starts: scale.coldStarts, say })),
  ],
  size: sizeRows,
  duties: dutiesRows,
  idle: idleRows,
  memory: memoryRows,
  snapshot: snapshotRows,
};
