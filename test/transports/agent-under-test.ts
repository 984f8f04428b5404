import { join } from "node:path";
import { isCurrent, sourcesDigest } from "../../scripts/package/currency.ts";
import { AGENT_COMMAND, type AgentCommand } from "../fixtures/agent.ts";

const ROOT = join(import.meta.dirname, "..", "..");

/**
 * The program that GUEST_AGENT_ENTRY names, else the built bundle, else the sources. Passes over a bundle that was
 * built from other sources: it proves nothing about these.
 */
export function agentUnderTest(): AgentCommand {
  if (process.env["GUEST_AGENT_ENTRY"] !== undefined) return AGENT_COMMAND;
  const arch = process.arch === "arm64" ? "arm64" : "x64";
  const isBuilt = isCurrent(ROOT, arch, sourcesDigest(ROOT));
  return isBuilt ? [join(ROOT, "dist", `linux-${arch}`, "guest-agent")] : AGENT_COMMAND;
}
