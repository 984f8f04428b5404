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
import { streamRows } from "./rows/streams.ts";
import { startupRows } from "./startup/index.ts";

/** How each group of rows is measured. */
export const MEASURES: Readonly<Record<Group, (bench: Bench) => readonly Row[] | Promise<readonly Row[]>>> = {
  health: healthRows,
  exec: execRows,
  streams: streamRows,
  files: fileRows,
  growth: growthRows,
  startup: (bench) =>
    startupRows({ agentProgram: bench.agentProgram, starts: bench.scale.starts, say: (text) => bench.say(text) }),
  size: sizeRows,
  duties: dutiesRows,
  idle: idleRows,
  memory: memoryRows,
};
