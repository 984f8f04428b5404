import { setTimeout as pause } from "node:timers/promises";
import { type GuestClient, GuestError, restoreDuties } from "../client/index.ts";
import type { ClientCredentials } from "../credentials/index.ts";
import { messageOf } from "../domain/index.ts";
import { SandboxError } from "./errors.ts";
import { asked, ATTEMPT_MS, awaken, type Awakening, CALL_MS, type Patience, PAUSE_MS } from "./guest.ts";
import type { GuestFile } from "./injection.ts";
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
    if (!isAwake) return { ...(await welcomeFork(node, await copy(node, parent, entry))), source: undefined };
    const suspended = await quiesced(node, "fork", parent);
    const forked = await orAwaken(node, "fork", suspended, () => copy(node, suspended, entry));
    // At once: neither must wait for the other's duties.
    const source = node.awaken("fork", suspended);
    const welcome = welcomeFork(node, forked);
    await Promise.allSettled([source, welcome]);
    return { ...(await welcome), source: await source };
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
  const instance = await node.made(entry, () =>
    origin.kind === "sandbox" ? node.substrate.fork(id, name) : node.substrate.forkSnapshot(id, name),
  );
  const forked = { ...entry, ...inheritance(origin), instanceId: instance.id };
  node.journal.put(forked);
  return forked;
}

async function welcomeFork(
  node: Node,
  entry: SandboxEntry,
): Promise<{ readonly fork: SandboxEntry; readonly awakening: Awakening }> {
  const { name } = entry;
  node.step("fork", name, "duties, new credentials, duties, POST_RESTORE and Health");
  const succession = {
    parent: await node.credentials.client(parentOf(name)),
    fresh: await node.credentials.client(name),
    files: await node.credentials.guestFiles(name),
  };
  const awakening = await awakenFork((credentials) => node.dial(entry, credentials), succession, node.patience);
  const { runEpochMs, agentVersion } = awakening;
  const ready: SandboxEntry = { ...entry, phase: "ready", runEpochMs, agentVersion };
  node.step("fork", name, "write down that it is ready");
  node.journal.put(ready);
  await node.credentials.remove(parentOf(name));
  return { fork: ready, awakening };
}

/** Makes a client of the fork's agent. */
type Dial = (credentials: ClientCredentials) => Promise<GuestClient>;

/** The two sets of credentials of a fork. */
interface Succession {
  /** Those of its origin, with which it wakes up. */
  readonly parent: ClientCredentials;
  readonly fresh: ClientCredentials;
  /** The guest's part of the fresh ones. */
  readonly files: readonly GuestFile[];
}

/**
 * Gives a fork that has woken up credentials of its own: duties, which end the sessions of its origin; the new credential
 * files; duties once more, for which the agent reads them. In between the agent may take any mixture of old and new, so the
 * mixtures are tried. Resolves once it answers to the new ones. Rejects with GuestError.
 */
async function awakenFork(dial: Dial, succession: Succession, patience: Patience): Promise<Awakening> {
  const accepted = (areDutiesDone: boolean): Promise<GuestClient> =>
    acceptedClient(dial, mixturesOf(succession, areDutiesDone), patience.reachMs);
  const inherited = (): Promise<GuestClient> => dial(succession.parent);
  const { reachMs } = patience;
  await restoreDuties(inherited, { reachMs, signal: AbortSignal.timeout(3 * reachMs) });
  await writeAll(inherited, () => accepted(false), succession.files, reachMs);
  const awakening = await awaken(accepted, patience);
  using client = await dial(succession.fresh);
  await client.health({ waitForReady: true, deadlineMs: patience.reachMs });
  return awakening;
}

/** Writes all files; all of them again where the agent took a part of them, and so ended the connection. */
async function writeAll(
  inherited: () => Promise<GuestClient>,
  accepted: () => Promise<GuestClient>,
  files: readonly GuestFile[],
  reachMs: number,
): Promise<void> {
  const untilMs = performance.now() + reachMs;
  for (let next = inherited; ; next = accepted) {
    try {
      await asked(next, async (client) => {
        for (const { path, content } of files) {
          await client.writeFile(path, content, { mode: 0o600 }, { deadlineMs: CALL_MS });
        }
      });
      return;
    } catch (error) {
      if (!(error instanceof GuestError) || performance.now() >= untilMs) throw error;
    }
    await pause(PAUSE_MS);
  }
}

/** All mixtures that the agent may take, the likeliest first: each attempt with another is a refused call in its log. */
function mixturesOf({ parent, fresh }: Succession, areDutiesDone: boolean): readonly ClientCredentials[] {
  const caPem = Buffer.concat([parent.caPem, fresh.caPem]);
  const whole = [
    { ...parent, caPem },
    { ...fresh, caPem },
  ];
  if (areDutiesDone) whole.reverse();
  return [...whole, { ...fresh, caPem, token: parent.token }, { ...parent, caPem, token: fresh.token }];
}

/** A client with the credentials that the agent takes at this moment. */
async function acceptedClient(
  dial: Dial,
  mixtures: readonly ClientCredentials[],
  reachMs: number,
): Promise<GuestClient> {
  const untilMs = performance.now() + reachMs;
  for (;;) {
    let problem: unknown;
    for (const credentials of mixtures) {
      const client = await dial(credentials);
      try {
        await client.health({ deadlineMs: ATTEMPT_MS });
        return client;
      } catch (error) {
        client.close();
        problem ??= error;
      }
    }
    if (performance.now() >= untilMs) {
      throw new SandboxError(
        "AGENT_UNREACHABLE",
        `the fork takes neither old nor new credentials: ${messageOf(problem)}`,
        problem,
      );
    }
    await pause(PAUSE_MS);
  }
}
