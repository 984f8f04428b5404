import { messageOf } from "../../../shared/errors.ts";
import {
  type Awakening,
  bundleOf,
  CALL_MS,
  callLimits,
  compareKeys,
  requireAgent,
  requireFeature,
  type Entry,
  freezeLeftMs,
  freezeTimeMs,
  type Freeze,
  isRunning,
  type JournalEntry,
  type DaemonParts,
  type InstanceParts,
  type NodeParts,
  quiesce,
  type SuspendReport,
  type RestoreChoices,
  type SandboxEntry,
  suspensionWarnings,
  unfrozenBecause,
  type Warning,
} from "../state/index.ts";
import { withSiblingCheck, booted } from "./start.ts";
import { type Instance, type InstanceState, lasting, type OperationOptions, SandboxError } from "../substrate/index.ts";
import { GuestError } from "../../client/index.ts";
import { checkVariables, requireFrozen, requireRenewable, type Variables } from "./environment.ts";
import { awakenWith } from "./renewal.ts";
import { paused, sourceStillSuspended, unreached, wrongState } from "./state-errors.ts";

/** Options of the operations that suspend a running sandbox: standby, snapshot and fork. */
export interface SuspendOptions extends OperationOptions {
  /**
   * Whether to freeze the session. A later resume or fork with `env` requires a session that was frozen. Default: the
   * node's `freeze`.
   */
  readonly freeze?: Freeze | undefined;
}

/** The result of a suspension. */
export interface Suspension extends SuspendReport {
  /** Warnings of the suspension; they include NOT_FROZEN if the requested freeze failed. */
  readonly warnings: readonly Warning[];
}

/** Suspends a running sandbox to disk, which frees its memory and CPU. */
export async function standby(
  node: NodeParts,
  entry: SandboxEntry,
  options: SuspendOptions = {},
  operation = "standby",
): Promise<Suspension> {
  await suspendable(node, entry);
  await requireFeature(node, "standby", entry);
  const suspended = await quiesced(node, operation, entry, options);
  await resumeOnFailure(node, operation, suspended, () => {
    node.step(operation, entry.name, "suspend it");
    return node.instances.changed(suspended, () => node.substrate.standby(entry.instanceId ?? ""), "Standby");
  });
  await node.journal.put(suspended);
  return { ...suspended.preSnapshot, warnings: suspensionWarnings(suspended.preSnapshot) };
}

/**
 * Runs an action that suspends or stops a sandbox. If the action fails and the sandbox is still running, the restore
 * steps are run, because the daemon may have suspended and resumed the sandbox meanwhile. Rejects with PAUSED if the
 * sandbox neither runs nor is on standby.
 */
export async function resumeOnFailure<Value>(
  node: NodeParts,
  operation: string,
  entry: SandboxEntry,
  action: () => Promise<Value>,
): Promise<Value> {
  try {
    return await action();
  } catch (error) {
    return lasting(async () => {
      const state = await stateOf(node, entry);
      if (state === "Paused") throw await pausedAfter(node, entry, error);
      if (state === "unknown" || isRunning(state)) await awakenAfter(node, operation, entry, state);
      throw error;
    });
  }
}

/** State of a sandbox's instance. "gone": there is no instance. "unknown": the daemon does not answer. */
type KnownState = InstanceState | "gone" | "unknown";

async function stateOf(node: InstanceParts, entry: SandboxEntry): Promise<KnownState> {
  try {
    return (await node.instances.find(entry))?.state ?? "gone";
  } catch {
    return "unknown";
  }
}

/**
 * Runs the restore steps after a failure. If the sandbox's state is unknown, waits only briefly for the agent: the
 * sandbox may be suspended, and then its agent cannot answer.
 */
async function awakenAfter(node: NodeParts, operation: string, entry: SandboxEntry, state: KnownState): Promise<void> {
  await node.guests
    .awaken(operation, entry, { reachTimeoutMs: state === "unknown" ? CALL_MS : undefined })
    .catch(() => undefined);
}

/**
 * Runs an action (a snapshot or a fork) during which the substrate suspends a running sandbox. If the action fails and
 * the sandbox is still suspended, restores the sandbox once and runs its restore steps. Then rejects with the error of
 * the action. If this restore fails as well, rejects with SOURCE_ASLEEP, whose message contains the error of the
 * action. The action itself must remove what it has created before it fails.
 *
 * @param suspended returns the sandbox, once its PRE_SNAPSHOT hook has run
 */
export async function restoreSourceOnFailure<Value>(
  node: NodeParts,
  operation: string,
  suspended: () => SandboxEntry | undefined,
  action: () => Promise<Value>,
): Promise<Value> {
  try {
    return await action();
  } catch (error) {
    const source = suspended();
    const entry = source && node.journal.get(source.name);
    if (entry?.kind !== "sandbox" || entry.runEpochMs !== undefined) throw error;
    return lasting(async () => {
      const state = await stateOf(node, entry);
      if (state === "Paused") throw await pausedAfter(node, entry, error);
      if (state === "Standby") await restoredAgain(node, operation, entry, error);
      if (state !== "gone") await awakenAfter(node, operation, entry, state);
      throw error;
    });
  }
}

/**
 * Restores a sandbox that the substrate has left suspended. If that fails, records the reason in the journal and
 * rejects with SOURCE_ASLEEP.
 */
async function restoredAgain(
  node: InstanceParts,
  operation: string,
  entry: SandboxEntry,
  failure: unknown,
): Promise<void> {
  const { name } = entry;
  node.step(operation, name, "restore the sandbox once more");
  try {
    await wake(node, entry);
  } catch (error) {
    const asleepBecause = `the ${operation} failed (${messageOf(failure)}), and so did the restore that followed (${messageOf(error)})`;
    await node.journal.put({ ...entry, asleepBecause });
    throw sourceStillSuspended(name, asleepBecause, failure);
  }
}

/** Restores a suspended sandbox. Also succeeds if the substrate is already restoring the sandbox. */
export async function wake(node: InstanceParts, entry: SandboxEntry): Promise<void> {
  try {
    await node.instances.changed(entry, () => node.substrate.restore(entry.instanceId ?? ""), "Running");
  } catch (error) {
    if (!isRunning((await node.instances.existing(entry)).state)) throw error;
  }
}

/**
 * Returns the `paused` error to report after a failed call to the daemon. If the daemon has answered, the call has
 * ended. In this case, first removes the field `asked` from the journal's entry, because that field says that the
 * daemon may still be executing a call.
 */
async function pausedAfter(node: DaemonParts, entry: SandboxEntry, failure: unknown): Promise<SandboxError> {
  const isAnswered = !(failure instanceof SandboxError && failure.code === "SUBSTRATE_UNAVAILABLE");
  if (isAnswered) await node.journal.put({ ...entry, asked: undefined });
  return paused(entry, failure);
}

/** Options of `resume`. */
export interface ResumeOptions extends RestoreChoices, OperationOptions {
  /**
   * Environment variables, which are merged into the sandbox's Process.env. A frozen session has them before any of its
   * processes runs again. The call resolves once new commands get the variables; running processes keep their old
   * ones.
   *
   * With `env`, the resume is rejected with NOT_FROZEN if the session was not frozen when it was suspended. To accept
   * such a session, set `acceptUnfrozen`.
   *
   * By default, a standby succeeds with a warning if its freeze fails, and only a later resume with `env` is rejected.
   * To make the standby itself fail, call it with `freeze: "required"`.
   */
  readonly env?: Variables | undefined;
}

/** Resumes a suspended sandbox, or runs missing restore steps. Resolves with undefined if it boots a stopped sandbox. */
export async function resume(
  node: NodeParts,
  entry: SandboxEntry,
  choices: ResumeOptions,
): Promise<Awakening | undefined> {
  const { env } = choices;
  checkVariables(env);
  requireAgent(entry, choices.minAgentVersion);
  const { state, stateError } = await known(node, entry);
  const id = entry.instanceId ?? "";
  let differing: readonly Warning[] = [];
  if (state === "Paused") throw paused(entry);
  if (state === "Unknown") throw unreached(entry.name, stateError);
  const boots = state === "Stopped" || entry.bootingSinceMs !== undefined;
  if (env !== undefined && boots) throw keepsVariables(entry.name, state);
  if (env !== undefined && (state === "Standby" || entry.runEpochMs === undefined)) {
    requireRenewable(entry);
    requireFrozen(node, entry, choices, "resumed");
  }
  if (state === "Standby") {
    differing = await compareKeys(node, "resume", entry, choices);
    node.step("resume", entry.name, "restore it");
    if (entry.preSnapshot?.freeze === "frozen")
      await node.journal.put({ ...entry, thawsAtMs: Date.now() + freezeLeftMs(node.guests.patience) });
    await withSiblingCheck(node, entry, () =>
      node.instances.changed(entry, () => node.substrate.restore(id), "Running"),
    );
  } else if (state === "Stopped") {
    node.step("resume", entry.name, "start it");
    const booting = { ...entry, bootingSinceMs: Date.now() };
    await node.journal.put(booting);
    await node.instances.changed(booting, () => node.substrate.start(id), "Running");
    return bootedAnew(node, booting);
  } else if (entry.bootingSinceMs !== undefined) {
    return bootedAnew(node, entry);
  } else if (entry.runEpochMs !== undefined) {
    throw wrongState(entry.name, state, "only a sandbox on standby, or one that was stopped, can be resumed");
  }
  const restored = node.journal.sandbox(entry.name);
  const awakening =
    env === undefined ? await node.guests.awaken("resume", restored) : await awakenWith(node, restored, env);
  return { ...awakening, warnings: [...differing, ...awakening.warnings] };
}

/**
 * Creates the error for a call that sets variables of a stopped or booting sandbox. The workload of such a sandbox
 * starts with the variables on its disk.
 */
function keepsVariables(name: string, state: InstanceState): SandboxError {
  const how = state === "Stopped" ? "is stopped" : "is booting";
  const message = `${name} ${how}: its workload gets the environment variables on its disk; env can replace them only when a suspended sandbox is resumed`;
  return new SandboxError("WRONG_STATE", message, undefined, { remedy: { kind: "suspendFirst", name } });
}

/** Waits for the agent of a sandbox that boots instead of being restored. Without a restore, there are no restore steps. */
async function bootedAnew(node: NodeParts, entry: SandboxEntry): Promise<undefined> {
  node.step("resume", entry.name, "wait for the agent");
  const agent = await booted(node, entry, entry.bootingSinceMs ?? Date.now());
  await node.journal.put({
    ...entry,
    bootingSinceMs: undefined,
    preSnapshot: undefined,
    ranUnfrozen: undefined,
    ...agent,
  });
}

/** The fields of an entry that a snapshot or fork inherits. */
export function inheritance(
  original: JournalEntry,
): Omit<Entry, "name" | "phase" | "createdMs"> & Pick<SandboxEntry, "vsock"> {
  const { image, hypervisor, volumeId, agentVolumeId, ttlMs, idleAction } = original;
  const { agentVersion, agentServices, processEnvVersion, agentPort, keys, preSnapshot, vsock } = original;
  const ofItself = { image, hypervisor, volumeId, agentVolumeId, ttlMs, idleAction };
  return { ...ofItself, agentVersion, agentServices, processEnvVersion, agentPort, keys, preSnapshot, vsock };
}

/**
 * The journal entry of a suspended sandbox, with the results of the PRE_SNAPSHOT hook and of the freeze. A sandbox
 * counts as suspended from the end of that hook until its restore steps are run.
 */
export type Suspended = SandboxEntry & { readonly preSnapshot: SuspendReport };

/**
 * Runs PRE_SNAPSHOT, freezes the session, and records the properties that must be the same at a restore
 * (`SnapshotKeys`). If a step fails, runs the restore steps, which thaw the session. Rejects with NOT_FROZEN if the
 * freeze was required and failed.
 *
 * @param mustFreeze requires the freeze even if `freeze` is only "on". A fork with new secrets needs this: without the
 *   freeze, the fork would run for a moment with the secrets of its source
 */
export async function quiesced(
  node: NodeParts,
  operation: string,
  entry: SandboxEntry,
  { freeze = node.guests.freeze }: SuspendOptions,
  mustFreeze = false,
): Promise<Suspended> {
  node.step(operation, entry.name, freeze === "off" ? "PRE_SNAPSHOT" : "PRE_SNAPSHOT and freeze");
  const [{ version }, cpuClass, { ip }] = await Promise.all([
    node.substrate.facts(),
    node.cpuClass(),
    node.instances.existing(entry),
  ]);
  // The session does not thaw before this time. It may thaw later, because the time limit of the freeze begins only at
  // the end of the PRE_SNAPSHOT hook.
  const thawsAtMs = freeze === "off" ? undefined : Date.now() + freezeTimeMs(node.guests.patience);
  const suspending: SandboxEntry = { ...entry, runEpochMs: undefined, lastIp: ip, thawsAtMs, preSnapshot: undefined };
  // Call the agent first: if it cannot be reached, the operation fails before anything is frozen.
  const { processEnvVersion, services: agentServices } = await node.guests.ask(suspending, (client) =>
    client.health(callLimits(CALL_MS)),
  );
  // From here on the session may be frozen. If this process ends, the next sweep finds the entry and thaws the session.
  node.operations.setRisk(entry.name, "its session is frozen until its restore steps run");
  await node.journal.put(suspending);
  try {
    const { preSnapshot, agentVersion } = await prepareSnapshot(node, operation, suspending, freeze);
    if (preSnapshot.freeze !== "frozen") {
      if (freeze === "required") throw notFrozen(entry.name, preSnapshot);
      if (freeze === "on" && mustFreeze) throw notFrozen(entry.name, preSnapshot, "acceptUnfrozen");
    }
    const { template } = entry.keys;
    const keys = { template, bundle: bundleOf(entry.hypervisor, version, agentVersion), cpuClass };
    const suspended = { ...suspending, keys, agentVersion, agentServices, processEnvVersion, preSnapshot };
    await node.journal.put({ ...suspended, asked: { operation, atMs: Date.now() } });
    return suspended;
  } catch (error) {
    await lasting(() => node.guests.awaken(operation, suspending)).catch(() => undefined);
    throw error;
  }
}

/** Runs PRE_SNAPSHOT and the freeze. If an earlier call has left the session frozen, runs the restore steps first. */
async function prepareSnapshot(
  node: NodeParts,
  operation: string,
  entry: SandboxEntry,
  freeze: Freeze,
): Promise<{ readonly preSnapshot: SuspendReport; readonly agentVersion: string }> {
  const attempt = (): Promise<{ readonly preSnapshot: SuspendReport; readonly agentVersion: string }> =>
    node.guests.ask(entry, async (client) => {
      const preSnapshot = await quiesce(client, freeze, node.guests.patience);
      return { preSnapshot, agentVersion: client.agentVersion ?? entry.agentVersion ?? "" };
    });
  try {
    return await attempt();
  } catch (error) {
    if (!(error instanceof GuestError) || error.reason !== "SESSION_FROZEN") throw error;
  }
  await node.guests.awaken(operation, entry);
  await node.journal.put(entry);
  return attempt();
}

function notFrozen(name: string, report: SuspendReport, kind?: "acceptUnfrozen"): SandboxError {
  const message = `${name} was not suspended, because its session could not be frozen: ${unfrozenBecause(report)}`;
  return new SandboxError("NOT_FROZEN", message, undefined, { remedy: kind && { kind, name } });
}

/**
 * Waits until the guest's init has finished, because the substrate refuses suspensions before that. Rejects with
 * SandboxError (WRONG_STATE) if the wait takes too long. Then rejects as `running` does if the sandbox is not running
 * or its restore steps are not done.
 */
export async function suspendable(node: NodeParts, entry: SandboxEntry): Promise<void> {
  const { reachTimeoutMs } = node.guests.patience;
  if ((await known(node, entry, ["Initializing", "Unknown"])).state === "Initializing") {
    const rule = `a sandbox can be suspended only when its init has finished, and after ${reachTimeoutMs} ms it has not`;
    throw wrongState(entry.name, "Initializing", rule);
  }
  await running(node, entry);
}

/**
 * Waits until an instance has left the given states, or the time is up, and returns the instance. By default, waits
 * until the state is not "Unknown". It is "Unknown" while the instance's hypervisor is busy.
 */
async function known(
  node: NodeParts,
  entry: SandboxEntry,
  passing: readonly InstanceState[] = ["Unknown"],
): Promise<Instance> {
  const hasPassed = ({ state }: Instance): boolean => !passing.includes(state);
  const found = await node.instances.existing(entry);
  if (hasPassed(found)) return found;
  node.step("wait", entry.name, `wait while the sandbox is ${found.state}`);
  return node.instances.awaited(entry, hasPassed, node.guests.patience.reachTimeoutMs);
}

/** Rejects with SandboxError (WRONG_STATE, PAUSED) unless the sandbox runs and its restore steps are done. */
export async function running(node: InstanceParts, entry: SandboxEntry): Promise<void> {
  const { state, stateError } = await node.instances.existing(entry);
  if (state === "Paused") throw paused(entry);
  if (state === "Unknown") throw unreached(entry.name, stateError);
  if (!isRunning(state)) throw wrongState(entry.name, state, "only a running sandbox can be suspended or stopped");
  if (entry.runEpochMs !== undefined) return;
  const due = `the restore steps after the last suspension of ${entry.name} have not run yet`;
  const why = entry.bootingSinceMs === undefined ? due : `${entry.name} is booting and has not answered yet`;
  throw new SandboxError("WRONG_STATE", `${why}; resume it first`);
}
