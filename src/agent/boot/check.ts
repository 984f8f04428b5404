import { BOOTSTRAP_VARIABLES } from "../config/index.ts";
import type { Addon } from "../native/index.ts";
import { LauncherChannel, takeInheritance } from "../platform/index.ts";
import { AGENT_VERSION } from "../../shared/version.ts";

const STATUS_LIMITED = 1;

/** Prints what the agent could do in this guest, as a table or JSON. Resolves with the status: 0, or 1 if limited. */
export async function bootCheck(addon: Addon, asJson: boolean, print: (text: string) => void): Promise<number> {
  const { channelFd } = takeInheritance(addon, process.env, BOOTSTRAP_VARIABLES);
  const [{ guestFacts }, { checkGuest, describeChecks }] = await Promise.all([
    import("../platform/guest-facts.ts"),
    import("../check/index.ts"),
  ]);
  // The entrypoint is the launcher if there is one, else this process.
  const checks = checkGuest(guestFacts(addon, channelFd === undefined ? process.pid : process.ppid));
  const report = { version: AGENT_VERSION, ok: checks.every(({ ok }) => ok), checks };
  print(asJson ? `${JSON.stringify(report, undefined, 2)}\n` : describeChecks(checks));
  if (channelFd !== undefined) new LauncherChannel(addon, channelFd).announceExit();
  return report.ok ? 0 : STATUS_LIMITED;
}
