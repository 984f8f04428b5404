import { randomUUID } from "node:crypto";
import { type Dial, type DoneDuties, type GuestClient, GuestError, restoreDuties } from "../../client/index.ts";
import type { ClientCredentials } from "../../credentials/index.ts";
import {
  acceptedClient,
  freshAccepted,
  awaken,
  type Awakening,
  CALL_MS,
  callLimits,
  compareKeys,
  requireAgent,
  requireFeature,
  type JournalEntry,
  credentialMixtures,
  type InstanceParts,
  type NodeParts,
  parentOf,
  ranUnfrozen,
  reached,
  type RestoreChoices,
  type SandboxEntry,
  unfrozenWarnings,
  type Warning,
  whileUp,
} from "../state/index.ts";
import {
  checkVariables,
  requireFrozen,
  requireInForce,
  requireRenewable,
  dutiesBeforeFiles,
  environmentVersion,
  isSpecRefused,
  refusedSpec,
  type Variables,
  writeVariables,
} from "./environment.ts";
import { currentSignal, lasting, SandboxError, timeoutSignal } from "../substrate/index.ts";
import { requireUnpublished } from "./ingress.ts";
import { withSiblingCheck } from "./start.ts";
import { wrongState } from "./state-errors.ts";
import { createOrDiscard } from "./removal.ts";
import { inheritance, restoreSourceOnFailure, quiesced, suspendable, type SuspendOptions, wake } from "./suspend.ts";

/** How often an agent can begin to use new files while they are written: after some of them, and after the last one. */
const RENEWALS = 2;

/**
 * Creates a running sandbox from another sandbox or from a snapshot. The new sandbox has its own credentials and random
 * numbers, and the current time.
 */
export async function fork(
  node: NodeParts,
  parent: JournalEntry,
  name: string,
  choices: ForkOptions,
): Promise<{ readonly fork: SandboxEntry; readonly awakening: Awakening; readonly source: Awakening | undefined }> {
  const { env } = choices;
  checkVariables(env);
  requireAgent(parent, choices.minAgentVersion);
  const state = parent.kind === "sandbox" ? (await node.instances.existing(parent)).state : "Standby";
  const isAwake = state !== "Standby";
  let differing: readonly Warning[] = [];
  if (!isAwake) differing = await compareKeys(node, "fork", parent, choices);
  else if (state === "Stopped" || parent.kind !== "sandbox")
    throw wrongState(parent.name, state, "only a sandbox that runs or is on standby can be forked");
  else {
    await suspendable(node, parent);
    await requireFeature(node, "standby", parent);
  }
  if (env !== undefined) {
    const isRunning = isAwake && parent.kind === "sandbox";
    requireRenewable(isRunning ? { ...parent, processEnvVersion: await environmentVersion(node, parent) } : parent);
    if (!isAwake) requireFrozen(node, parent, choices, "forked", choices.freeze);
  }
  await requireFeature(node, "fork", parent);
  await requireUnpublished(node, name);
  const entry: SandboxEntry = {
    kind: "sandbox",
    name,
    phase: "creating",
    createdMs: Date.now(),
    tags: parent.kind === "sandbox" ? parent.tags : node.tags,
    ...inheritance(parent),
  };
  const finished = async (forked: SandboxEntry): Promise<FinishedFork> => {
    const { fork: made, awakening } = await whileUp(node.instances.subject(forked), (signal) =>
      finishFork(node, forked, choices, signal),
    );
    return { fork: made, awakening: { ...awakening, warnings: [...differing, ...awakening.warnings] } };
  };
  if (parent.kind !== "sandbox" || !isAwake) {
    return createOrDiscard(node, "fork", entry, async () => {
      const forked = await withSiblingCheck(node, entry, () => copy(node, node.journal.entry(parent.name), entry));
      return { ...(await finished(forked)), source: undefined };
    });
  }
  let suspended: SandboxEntry | undefined;
  return restoreSourceOnFailure(
    node,
    "fork",
    () => suspended,
    () =>
      createOrDiscard(node, "fork", entry, async () => {
        const mustFreeze = env !== undefined && choices.acceptUnfrozen !== true;
        const source = (suspended = await quiesced(node, "fork", parent, choices, mustFreeze));
        const forked = await copy(node, source, entry);
        // The fork keeps the vsock CID, and the daemon gives the source a new one (hypeman 8853445,
        // lib/instances/fork.go:72).
        const rotated = { ...source, vsock: randomUUID() };
        await node.journal.put(rotated);
        // The daemon normally resumes the source itself. If the daemon's answer was lost, the source may still be
        // suspended.
        if ((await node.instances.existing(source)).state === "Standby") await wake(node, source);
        // Restore both sandboxes in parallel, because neither should stay frozen while the other runs its restore
        // steps. An abort must not end the restore of the source, because its session would stay frozen.
        const awakening = lasting(() => node.guests.awaken("fork", rotated));
        const made = finished(forked);
        await Promise.allSettled([awakening, made]);
        return { ...(await made), source: await awakening };
      }),
  );
}

/** Options of a fork. `freeze` applies only to a running source. */
export interface ForkOptions extends RestoreChoices, SuspendOptions {
  /** Name of the fork. Default: a random name. */
  readonly name?: string | undefined;
  /**
   * Environment variables of the fork, as in `ResumeOptions`. They are merged into the Process.env that the fork has
   * from its source. The daemon does not receive them.
   *
   * With `env`, the fork is rejected with NOT_FROZEN if the source's session was not frozen when the source was
   * suspended. To accept such a source, set `acceptUnfrozen`, or set `freeze` to "off".
   *
   * By default, a standby or snapshot succeeds with a warning if its freeze fails, and only a later fork with `env` is
   * rejected. To make the standby or snapshot itself fail, call it with `freeze: "required"`.
   */
  readonly env?: Variables | undefined;
  /**
   * Accept a fork whose random number generators could not be reseeded, so that it may draw the same random numbers as
   * its origin. Default: false; `fork` then rejects with RESTORE_DEGRADED.
   */
  readonly acceptDegraded?: boolean | undefined;
}

/**
 * Runs the restore steps of an agent whose credential files were just replaced. The agent may begin to use the files
 * between two calls, and then refuses the second call. A refused call has no effect, so the steps are run again with
 * the credentials that the agent accepts by then.
 */
async function dutiesDuringRenewal(dial: Dial, reachTimeoutMs: number, signal: AbortSignal): Promise<DoneDuties> {
  const limit = currentSignal(signal, timeoutSignal(3 * reachTimeoutMs));
  for (let leftAttempts = RENEWALS; ; leftAttempts--) {
    try {
      const duties = await restoreDuties(dial, { reachTimeoutMs, signal: limit });
      return { duties, atMs: Date.now() };
    } catch (error) {
      if (leftAttempts === 0 || !(error instanceof GuestError && error.status === "UNAUTHENTICATED")) throw error;
    }
  }
}

interface FinishedFork {
  readonly fork: SandboxEntry;
  readonly awakening: Awakening;
}

/**
 * Creates the fork at the substrate. Afterwards the node's directory contains two credential sets for the fork: a copy
 * of its origin's set, which the fork still uses when it wakes up, and a new set.
 */
async function copy(node: InstanceParts, origin: JournalEntry, entry: SandboxEntry): Promise<SandboxEntry> {
  const { name } = entry;
  node.step("fork", name, "issue credentials");
  await node.credentials.copy(origin.name, parentOf(name));
  await node.credentials.issue(name);
  node.step("fork", name, "fork the instance or snapshot");
  const id = (origin.kind === "sandbox" ? origin.instanceId : origin.snapshotId) ?? "";
  const instance = await node.instances.changed(entry, () =>
    origin.kind === "sandbox" ? node.substrate.fork(id, name) : node.substrate.forkSnapshot(id, name),
  );
  const forked = { ...entry, ...inheritance(origin), instanceId: instance.id };
  await node.journal.put(forked);
  return forked;
}

/**
 * Gives a fork its own credentials and variables, in three steps. First, the restore steps end the connections of the
 * origin, and leave the session frozen. Second, the new files are written. Third, the restore steps run again: they
 * read the new files and thaw the session.
 *
 * Between the two runs of the restore steps, the agent may accept any combination of old and new credentials, so all
 * combinations are tried. Resolves once the agent answers to the new credentials.
 */
async function finishFork(
  node: NodeParts,
  entry: SandboxEntry,
  { acceptDegraded = false, env }: ForkOptions,
  signal: AbortSignal,
): Promise<FinishedFork> {
  const { name } = entry;
  const { reachTimeoutMs } = node.guests.patience;
  node.step(
    "fork",
    name,
    "run the restore steps, replace the credentials, run the restore steps again, run POST_RESTORE, and call Health",
  );
  const parent = await node.credentials.client(parentOf(name));
  const fresh = await node.credentials.client(name);
  // By this host's clock, the certificates in an old snapshot may have expired; by the guest's clock, they may still be
  // valid. So the guest's clock must not be set before the certificates are replaced.
  const hostTime = (await node.credentials.expiryMs(parentOf(name))) > Date.now();
  const dial = (credentials: ClientCredentials): Promise<GuestClient> =>
    node.guests.dial(entry, { credentials, credentialsOf: [parentOf(name), name], expiredOf: parentOf(name) });
  const inherited = (): Promise<GuestClient> => dial(parent);
  const accepted = (isFreshLikelier: boolean): Promise<GuestClient> =>
    acceptedClient(dial, credentialMixtures(parent, fresh, isFreshLikelier), { reachTimeoutMs, signal });
  await dutiesBeforeFiles(node, entry, inherited, { env, hostTime, signal });
  const files = await node.credentials.guestFiles(name);
  let dialAgain = inherited;
  // The agent may load its new credentials and end the connection when it has received only some of the files. So each
  // retry writes all files again.
  const write = async (): Promise<void> => {
    using client = await dialAgain();
    dialAgain = () => accepted(false);
    if (env !== undefined) await writeVariables(client, env);
    for (const { path, content } of files) {
      await client.files.writeFile(path, content, { mode: 0o600, ...callLimits(CALL_MS) });
    }
  };
  await reached(reachTimeoutMs, "the fork has not accepted its new credentials", write, signal);
  // If the inherited certificates have expired, first wait until the agent accepts the new ones: on a connection with
  // expired certificates, it refuses to set the clock to the host's time.
  if (!hostTime) await freshAccepted(dial, fresh, { reachTimeoutMs, signal });
  const dialWhole = (areDutiesDone: boolean): Promise<GuestClient> => accepted(areDutiesDone || !hostTime);
  const done = await dutiesDuringRenewal(dialWhole, reachTimeoutMs, signal);
  const awakening = await awaken(dialWhole, node.guests.patience, signal, done).catch(async (error: unknown) => {
    throw isSpecRefused(error) ? await refusedSpec(node, entry) : error;
  });
  // Agents before 0.4.0 do not fail the restore steps if they refuse the spec file. They thaw the session, and only
  // report the refusal.
  if (awakening.isSpecRefused) throw await refusedSpec(node, entry);
  if (awakening.notReseeded.length > 0 && !acceptDegraded) {
    const words = awakening.notReseeded.join(" ");
    throw new SandboxError(
      "RESTORE_DEGRADED",
      `the fork ${name} may draw the same random numbers as its origin: ${words}`,
    );
  }
  using client = await node.guests.dial(entry, { credentials: fresh });
  await client.health({ waitForReady: true, ...callLimits(reachTimeoutMs, signal) });
  if (env !== undefined) await requireInForce(client, entry, awakening);
  const { runEpochMs, agentVersion, agentServices } = awakening;
  const memory = { ranUnfrozen: ranUnfrozen("fork", entry) };
  const ready: SandboxEntry = { ...entry, phase: "ready", runEpochMs, agentVersion, agentServices, ...memory };
  node.step("fork", name, "record that the sandbox is ready");
  await node.journal.put(ready);
  await node.credentials.remove(parentOf(name));
  return {
    fork: ready,
    awakening: {
      ...awakening,
      warnings: [...unfrozenWarnings(entry, "the secrets of its origin"), ...awakening.warnings],
    },
  };
}
