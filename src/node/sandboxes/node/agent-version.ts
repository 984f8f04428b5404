import { SandboxError } from "../substrate/index.ts";
import type { JournalEntry } from "./journal.ts";

/** Major, minor, patch, and the pre-release, which comes before its release (semver.org, 11). */
const VERSION = /^(\d+)\.(\d+)\.(\d+)(-[\w.-]+)?$/;

/**
 * Throws SandboxError (AGENT_TOO_OLD) where the agent in a sandbox or snapshot is older than that, or its version is
 * not known, and INVALID_SPEC for no version. Asked before anything wakes up: nothing else can put another agent
 * there.
 */
export function demandAgent({ name, agentVersion = "" }: JournalEntry, least: string | undefined): void {
  if (least === undefined) return;
  const wanted = VERSION.exec(least);
  if (wanted === null)
    throw new SandboxError("INVALID_SPEC", `minAgentVersion: ${JSON.stringify(least)} is no version such as 0.3.0`);
  const found = VERSION.exec(agentVersion);
  if (found !== null && !isBefore(found, wanted)) return;
  const has = agentVersion === "" ? "an agent of unknown version" : `the agent ${agentVersion}`;
  throw new SandboxError("AGENT_TOO_OLD", `${name} has ${has}, and ${least} or later is asked for; nothing woke up`);
}

function isBefore(found: RegExpExecArray, wanted: RegExpExecArray): boolean {
  for (const part of [1, 2, 3]) {
    const difference = Number(found[part]) - Number(wanted[part]);
    if (difference !== 0) return difference < 0;
  }
  const [early, least] = [found[4], wanted[4]];
  return early !== undefined && (least === undefined || early < least);
}
