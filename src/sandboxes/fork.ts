import { type GuestClient, restoreDuties } from "../client/index.ts";
import type { ClientCredentials } from "../credentials/index.ts";
import { awaken, type Awakening, CALL_MS, retried } from "./guest.ts";
import type { JournalEntry, SandboxEntry } from "./journal.ts";
import { type Node, parentOf } from "./node.ts";
import { making } from "./removal.ts";
import { inheritance, isRunning, orAwaken, quiesced, running, wrongState } from "./suspend.ts";

/** Makes another running sandbox from a sandbox or a snapshot, with its own credentials and randomness and the current time. */
export async function fork(
  node: Node,
  parent: JournalEntry,
  name: string,
): Promise<{ readonly fork: SandboxEntry; readonly awakening: Awakening; readonly source: Awakening | undefined }> {
  await node.need("fork", parent);
  const state = parent.kind === "sandbox" ? (await node.existing(parent)).state : "Standby";
  const isAwake = parent.kind === "sandbox" && isRunning(state);
  if (isAwake) await running(node, parent);
  else if (state === "Standby") await node.compareKeys("fork", parent);
  else throw wrongState(parent.name, state, "only what runs or sleeps can be forked");
  const entry: SandboxEntry = {
    kind: "sandbox",
    name,
    phase: "creating",
    createdMs: Date.now(),
    tags: parent.kind === "sandbox" ? parent.tags : node.tags,
    ...inheritance(parent),
  };
  return making(node, "fork", entry, async () => {
    if (!isAwake) return { ...(await welcome(node, await copy(node, parent, entry))), source: undefined };
    const suspended = await quiesced(node, "fork", parent);
    const forked = await orAwaken(node, "fork", suspended, () => copy(node, suspended, entry));
    // At once: neither must wait for the other's duties.
    const source = node.awaken("fork", suspended);
    const welcomed = welcome(node, forked);
    await Promise.allSettled([source, welcomed]);
    return { ...(await welcomed), source: await source };
  });
}

/** Forks at the substrate, and keeps both sets of credentials here: the origin's, with which the fork wakes up, and its own. */
async function copy(node: Node, origin: JournalEntry, entry: SandboxEntry): Promise<SandboxEntry> {
  const { name } = entry;
  node.step("fork", name, "issue credentials");
  await node.credentials.copy(origin.name, parentOf(name));
  await node.credentials.issue(name);
  node.step("fork", name, "fork it");
  const id = (origin.kind === "sandbox" ? origin.instanceId : origin.snapshotId) ?? "";
  const instance = await node.changed(entry, () =>
    origin.kind === "sandbox" ? node.substrate.fork(id, name) : node.substrate.forkSnapshot(id, name),
  );
  const forked = { ...entry, ...inheritance(origin), instanceId: instance.id };
  node.journal.put(forked);
  return forked;
}

/**
 * Gives a fork that has woken up credentials of its own: duties, which end the sessions of its origin; the new credential
 * files; duties once more, for which the agent reads them. In between the agent may take any mixture of old and new, so the
 * mixtures are tried. Resolves once it answers to the new ones.
 */
async function welcome(
  node: Node,
  entry: SandboxEntry,
): Promise<{ readonly fork: SandboxEntry; readonly awakening: Awakening }> {
  const { name } = entry;
  const { reachMs } = node.patience;
  node.step("fork", name, "duties, new credentials, duties, POST_RESTORE and Health");
  const parent = await node.credentials.client(parentOf(name));
  const fresh = await node.credentials.client(name);
  const inherited = (): Promise<GuestClient> => node.dial(entry, parent);
  const accepted = (areDutiesDone: boolean): Promise<GuestClient> =>
    acceptedClient(node, entry, mixturesOf(parent, fresh, areDutiesDone));
  await restoreDuties(inherited, { reachMs, signal: AbortSignal.timeout(3 * reachMs) });
  const files = await node.credentials.guestFiles(name);
  let dial = inherited;
  // All of them again where the agent took a part of them, and so ended the connection.
  await retried(reachMs, "the fork has not taken its new credentials", async () => {
    using client = await dial();
    dial = () => accepted(false);
    for (const { path, content } of files) {
      await client.writeFile(path, content, { mode: 0o600 }, { deadlineMs: CALL_MS });
    }
  });
  const awakening = await awaken(accepted, node.patience);
  using client = await node.dial(entry, fresh);
  await client.health({ waitForReady: true, deadlineMs: reachMs });
  const { runEpochMs, agentVersion } = awakening;
  const ready: SandboxEntry = { ...entry, phase: "ready", runEpochMs, agentVersion };
  node.step("fork", name, "write down that it is ready");
  node.journal.put(ready);
  await node.credentials.remove(parentOf(name));
  return { fork: ready, awakening };
}

/** All mixtures that the agent may take, the likeliest first: each attempt with another is a refused call in its log. */
function mixturesOf(
  parent: ClientCredentials,
  fresh: ClientCredentials,
  areDutiesDone: boolean,
): readonly ClientCredentials[] {
  const caPem = Buffer.concat([parent.caPem, fresh.caPem]);
  const whole = [
    { ...parent, caPem },
    { ...fresh, caPem },
  ];
  if (areDutiesDone) whole.reverse();
  return [...whole, { ...fresh, caPem, token: parent.token }, { ...parent, caPem, token: fresh.token }];
}

/** A client with the credentials that the agent takes at this moment. */
function acceptedClient(node: Node, entry: SandboxEntry, mixtures: readonly ClientCredentials[]): Promise<GuestClient> {
  const problem = "the fork has taken neither old nor new credentials";
  return retried(node.patience.reachMs, problem, async (deadlineMs) => {
    let refusal: unknown;
    for (const credentials of mixtures) {
      const client = await node.dial(entry, credentials);
      try {
        await client.health({ deadlineMs });
        return client;
      } catch (error) {
        client.close();
        refusal ??= error;
      }
    }
    throw refusal;
  });
}
