import { join, relative } from "node:path";
import { isCurrent, sourcesDigest } from "../../scripts/package/currency.ts";
import { AGENT_COMMAND, type AgentCommand } from "../fixtures/agent.ts";

const ROOT = join(import.meta.dirname, "..", "..");

/** The agent of a suite. */
export interface AgentUnderTest {
  readonly command: AgentCommand;
  /** What it is, for people. */
  readonly what: string;
}

/**
 * The program that GUEST_AGENT_ENTRY names, else the built bundle, else the sources. Passes over a bundle that was
 * built from other sources: it proves nothing about these.
 */
export function agentUnderTest(): AgentUnderTest {
  const named = process.env["GUEST_AGENT_ENTRY"];
  if (named !== undefined) return { command: AGENT_COMMAND, what: named };
  const arch = process.arch === "arm64" ? "arm64" : "x64";
  const built = join(ROOT, "dist", `linux-${arch}`, "guest-agent");
  return isCurrent(ROOT, arch, sourcesDigest(ROOT))
    ? { command: [built], what: `the bundle ${relative(ROOT, built)}` }
    : { command: AGENT_COMMAND, what: "the sources (no bundle of them is built)" };
}
