import { globSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { AGENT_COMMAND, type AgentCommand } from "../fixtures/agent.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const BUILT = join(ROOT, "dist", `linux-${process.arch}`, "guest-agent");

/** The agent that a suite runs against. */
export interface AgentUnderTest {
  readonly command: AgentCommand;
  /** What it is, for people. */
  readonly what: string;
}

/**
 * The program that GUEST_AGENT_ENTRY names, else the built bundle, else the sources. A bundle that is older than a source
 * proves nothing about it and is passed over.
 */
export function agentUnderTest(): AgentUnderTest {
  const named = process.env["GUEST_AGENT_ENTRY"];
  if (named !== undefined) return { command: AGENT_COMMAND, what: named };
  const builtMs = timeOf(BUILT);
  if (builtMs === undefined) return { command: AGENT_COMMAND, what: "the sources (no bundle is built)" };
  const newer = globSync("src/**/*.{ts,c,h}", { cwd: ROOT }).find((file) => (timeOf(join(ROOT, file)) ?? 0) > builtMs);
  return newer === undefined
    ? { command: [BUILT], what: `the bundle ${relative(ROOT, BUILT)}` }
    : { command: AGENT_COMMAND, what: `the sources (the bundle is older than ${newer})` };
}

function timeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs;
}
