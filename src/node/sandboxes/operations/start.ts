import { type Health, restoreDuties } from "../../client/index.ts";
import {
  agentEnded,
  CALL_MS,
  callLimits,
  consoleTail,
  ending,
  isOff,
  linesBeforeAgent,
  type DaemonParts,
  type InstanceParts,
  type NodeParts,
  panicIn,
  reached,
  type SandboxEntry,
  WHOLE_CONSOLE_LINES,
} from "../state/index.ts";
import { currentSignal, type Instance, SandboxError } from "../substrate/index.ts";

/**
 * Pause between two reads of the console of an instance that does not answer. The daemon starts a process for each
 * read.
 */
const POLL_INTERVAL_MS = 1_000;
const SHOWN_LINES = 10;
/**
 * Limit on the difference between the clocks of a booted guest and of the host; above it, the guest's clock is set. A
 * guest reads its machine's clock in whole seconds when it boots, so small differences are normal.
 */
const CLOCK_LIMIT_MS = 2_000;
/** The line that the substrate's init prints if it cannot start the entrypoint (hypeman, lib/system/init/mode_exec.go). */
const NOT_STARTED = /failed to start entrypoint: (.*)/;
/**
 * Matches the shell's error message about a WORKDIR of the image that does not exist. The substrate's init makes a
 * shell run `cd WORKDIR && exec …` (hypeman 8853445, lib/system/init/mode_exec.go:117). Each shell words the message
 * differently.
 */
const NO_WORKDIR = /(?:^|\s)\S*sh: (?:line )?(?:\d+: )?cd: (?:line \d+: )?(?:can't cd to )?(\/[^:]*)/;
const NO_WORKDIR_STEP =
  "create that directory in the image, or remove the image's WORKDIR: the substrate's init changes to this directory before it starts the agent";
/**
 * The line that init prints before it powers the guest off because the substrate's own agent in the guest was not ready
 * within 10 s (hypeman 8853445, lib/system/init/mode_exec.go:103). This happens on hosts that are very busy.
 */
const NOT_READY = /guest-agent readiness gate failed; not launching entrypoint: (.*)/;
const NOT_READY_STEP =
  "try again when the host is less busy; if it happens each time, check the daemon's kernel and initrd";
const PANIC_STEP =
  "try again; if the kernel panics each time, look for the reason on the console, and check the daemon's kernel and hypervisor";
/**
 * The line that a kernel prints if it cannot start init. Error -8 is ENOEXEC: the program is built for another
 * processor architecture.
 */
const NO_INIT = /Kernel panic - not syncing: (?:No working init found|Requested init \S+ failed \(error -8\))/;
const NO_INIT_STEP =
  "the daemon's init is built for another processor architecture (a fault of hypeman's arm64 release 0.17.0): use another release, or put an init and an agent for this host's architecture into the daemon's initrd";

/**
 * Waits for the first answer of an agent that has booted, and corrects the guest's clock if it is wrong. Rejects with
 * SandboxError: IMAGE_UNSUITABLE, AGENT_ENDED or AGENT_UNREACHABLE, each with the last console lines.
 *
 * @param sinceMs a time before the boot, which becomes `runEpochMs` of the result. It must be before the boot, because
 *   an idle declaration counts only if it is later than `runEpochMs`, and the workload may declare itself idle as soon
 *   as it starts
 */
export async function booted(
  node: NodeParts,
  entry: SandboxEntry,
  sinceMs: number,
): Promise<Pick<SandboxEntry, "agentVersion" | "agentServices" | "runEpochMs">> {
  let lookMs = 0;
  try {
    const agent = await reached(
      node.guests.patience.reachTimeoutMs,
      "the agent has not answered",
      async (deadlineMs) => {
        try {
          using client = await node.guests.dial(entry);
          const health = await client.health({ waitForReady: true, ...callLimits(deadlineMs) });
          if (isClockWrong(health)) {
            const { reachTimeoutMs } = node.guests.patience;
            const limits = { reachTimeoutMs, dutiesTimeoutMs: CALL_MS, signal: currentSignal() };
            await restoreDuties(() => node.guests.dial(entry), limits);
          }
          return { agentVersion: client.agentVersion ?? "", agentServices: health.services };
        } catch (error) {
          const instance = await node.instances.existing(entry);
          if (isOff(instance) || performance.now() >= lookMs) {
            await lookForStart(node, entry, instance);
            lookMs = performance.now() + POLL_INTERVAL_MS;
          }
          if (isOff(instance)) throw await agentEnded(node.instances.subject(entry), instance);
          throw error;
        }
      },
    );
    return { ...agent, runEpochMs: sinceMs };
  } catch (error) {
    if (!(error instanceof SandboxError) || error.code !== "AGENT_UNREACHABLE") throw error;
    const instance = await node.instances.find(entry).catch(() => undefined);
    const tail =
      error.consoleTail.length > 0 ? error.consoleTail : instance && (await ending(node.substrate, instance.id));
    throw new SandboxError(error.code, error.message, error.cause, { consoleTail: tail, nextStep: error.nextStep });
  }
}

/**
 * Whether the guest's clock is far off, as on a machine without a clock battery (1970, 1980). TLS clients in the guest
 * would then refuse certificates that are valid today. If the agent sends no time, returns false, and the clock is not
 * changed.
 */
function isClockWrong({ guestTime }: Pick<Health, "guestTime">): boolean {
  return guestTime !== undefined && Math.abs(guestTime.getTime() - Date.now()) > CLOCK_LIMIT_MS;
}

/**
 * Rejects if the console shows that init could not start the entrypoint, or that the kernel panicked. Such an instance
 * would stay "Initializing" until it is deleted.
 */
async function lookForStart(node: DaemonParts, { image }: SandboxEntry, { id }: Instance): Promise<void> {
  const lines = await consoleTail(node.substrate, id, WHOLE_CONSOLE_LINES);
  const shown = (at: number): { readonly consoleTail: readonly string[] } => ({
    consoleTail: lines.slice(at, at + SHOWN_LINES),
  });
  const panic = panicIn(lines);
  if (panic !== undefined) {
    const { line, consoleTail: panicTail } = panic;
    const isInits = NO_INIT.test(line);
    const message = isInits ? `no instance can boot on this host: ${line}` : `the guest's kernel has panicked: ${line}`;
    const nextStep = isInits ? NO_INIT_STEP : PANIC_STEP;
    throw new SandboxError("AGENT_UNREACHABLE", message, undefined, { consoleTail: panicTail, nextStep });
  }
  // Examine only the lines before the agent's first line, because a workload may print the same text later.
  for (const [at, line] of linesBeforeAgent(lines).entries()) {
    const [, gate] = NOT_READY.exec(line) ?? [];
    if (gate !== undefined) {
      const message = `the daemon's init did not start the agent, because the daemon's helper program in the guest was not ready: ${gate}`;
      throw new SandboxError("AGENT_UNREACHABLE", message, undefined, { ...shown(at), nextStep: NOT_READY_STEP });
    }
    const [, problem] = NOT_STARTED.exec(line) ?? [];
    const [, workdir] = NO_WORKDIR.exec(line) ?? [];
    if (problem === undefined && workdir === undefined) continue;
    const what = problem ?? `its WORKDIR ${workdir?.trim()} cannot be entered`;
    const message = `init cannot start anything in the image ${image}: ${what}`;
    const nextStep = problem === undefined ? NO_WORKDIR_STEP : undefined;
    throw new SandboxError("IMAGE_UNSUITABLE", message, undefined, { ...shown(at), nextStep });
  }
}

/**
 * Starts a sandbox from memory: a suspended sandbox, or a fork of a suspended sandbox or of a snapshot. Rejects with
 * SIBLING_RUNNING if the start fails because another guest with the same vsock CID is running.
 *
 * Under QEMU, two guests with the same CID cannot run at the same time. A fork of a suspended sandbox or of a snapshot
 * has the CID of its origin. After a fork of a running sandbox the two CIDs differ, because the daemon gives the source
 * a new CID (hypeman 8853445, lib/instances/fork.go:72).
 *
 * If a start fails for this reason, the daemon does not report the reason (lib/instances/snapshot.go:461,
 * lib/hypervisor/qemu/diagnostics.go:22), so this function checks which guests are running.
 */
export async function withSiblingCheck<Value>(
  node: InstanceParts,
  entry: SandboxEntry,
  start: () => Promise<Value>,
): Promise<Value> {
  const { name, hypervisor } = entry;
  try {
    return await start();
  } catch (error) {
    if (!(error instanceof SandboxError) || error.code !== "SUBSTRATE_FAILED" || !hypervisor.startsWith("qemu"))
      throw error;
    const siblings = node.journal
      .all()
      .filter((other) => other.kind === "sandbox")
      .filter((other) => vsockOf(other) === vsockOf(entry) && other.name !== name);
    const states = await Promise.all(siblings.map((other) => node.instances.find(other).catch(() => undefined)));
    const running = siblings.filter((_, index) => states[index]?.state === "Running").map((other) => other.name);
    if (running.length === 0) throw error;
    const names = running.join(", ");
    const message = `${name} could not be started while ${names} ${running.length === 1 ? "is" : "are"} running, because they come from the same sandbox or snapshot: ${error.message}`;
    const nextStep = `suspend or remove ${names}, and try again: under QEMU, sandboxes with the same vsock CID can only run one at a time`;
    throw new SandboxError("SIBLING_RUNNING", message, error, { nextStep });
  }
}

function vsockOf({ vsock, volumeId }: SandboxEntry): string {
  return vsock ?? volumeId;
}
