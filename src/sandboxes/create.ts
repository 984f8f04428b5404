import { SandboxError } from "./errors.ts";
import { retried } from "./guest.ts";
import { agentEnvironment, mounts } from "./injection.ts";
import type { SandboxEntry } from "./journal.ts";
import { bundleOf } from "./keys.ts";
import { NODE_TAG, type Node } from "./node.ts";
import { making } from "./removal.ts";
import { randomName, type SandboxSpec } from "./spec.ts";
import type { Image, Instance } from "./substrate.ts";

const OPERATION = "create";

/** Makes a sandbox from a checked specification. Where any step fails, all that was made is removed again. */
export async function create(node: Node, spec: SandboxSpec): Promise<SandboxEntry> {
  const name = spec.name ?? randomName("sandbox");
  return node.alone(name, async () => {
    const entry = await plan(node, name, spec);
    return making(node, OPERATION, entry, () => build(node, entry, spec));
  });
}

/** The journal entry, before anything is made. */
async function plan(node: Node, name: string, spec: SandboxSpec): Promise<SandboxEntry> {
  node.step(OPERATION, name, "look at image and daemon");
  const [daemon, image] = await Promise.all([node.substrate.facts(), node.substrate.image(spec.image)]);
  const { digest } = readyImage(image, spec.image);
  const hypervisor = spec.hypervisor ?? daemon.defaultHypervisor;
  return {
    kind: "sandbox",
    name,
    phase: "creating",
    createdMs: Date.now(),
    image: spec.image,
    hypervisor,
    volumeId: `${name}-credentials`,
    ttlMs: spec.ttlMs,
    idleAction: spec.idleAction ?? "none",
    keys: { template: digest, bundle: bundleOf(hypervisor, daemon.version, ""), cpuClass: await node.cpuClass() },
    tags: { ...spec.tags, ...node.tags },
  };
}

function readyImage(image: Image | undefined, name: string): Image {
  if (image === undefined) throw new SandboxError("IMAGE_NOT_READY", `the substrate has no image ${name}`);
  if (image.status !== "ready")
    throw new SandboxError("IMAGE_NOT_READY", `the image ${name} is ${image.status}, not ready`);
  return image;
}

async function build(node: Node, planned: SandboxEntry, spec: SandboxSpec): Promise<SandboxEntry> {
  const { name, tags, volumeId } = planned;
  node.step(OPERATION, name, "issue credentials");
  await node.credentials.issue(name);
  node.step(OPERATION, name, "provide the agent's volume");
  const agent = await node.agentVolume();
  node.step(OPERATION, name, "make the credential volume");
  const archive = await node.credentials.archive(name, spec.process ?? {}, spec.hooks ?? {});
  await node.substrate.createVolume({ id: volumeId, tags: node.tags }, archive);
  node.step(OPERATION, name, "create the instance");
  const sinceMs = Date.now();
  const instance = await node.changed(planned, () =>
    node.substrate.createInstance(spec, {
      name,
      entrypoint: agent.entrypoint,
      env: agentEnvironment(node.agentPort),
      tags,
      volumes: mounts(agent.id, volumeId),
    }),
  );
  const entry = { ...planned, instanceId: instance.id, hypervisor: instance.hypervisor ?? planned.hypervisor };
  node.journal.put(entry);
  checkAnswer(node, instance);
  node.step(OPERATION, name, "wait for the agent");
  const ready: SandboxEntry = { ...entry, phase: "ready", ...(await booted(node, entry, sinceMs)) };
  node.step(OPERATION, name, "write down that it is ready");
  node.journal.put(ready);
  return ready;
}

/**
 * Waits for the first answer of a booted agent. The run epoch is the time before the boot (`sinceMs`), because a workload may
 * declare itself idle first thing.
 */
export async function booted(
  node: Node,
  entry: SandboxEntry,
  sinceMs: number,
): Promise<Pick<SandboxEntry, "agentVersion" | "runEpochMs">> {
  const agentVersion = await retried(node.patience.reachMs, "the agent has not answered", async (deadlineMs) => {
    try {
      using client = await node.dial(entry);
      await client.health({ waitForReady: true, deadlineMs });
      return client.agentVersion ?? "";
    } catch (error) {
      await lookForEnd(node, entry);
      throw error;
    }
  });
  return { agentVersion, runEpochMs: sinceMs };
}

/** A daemon older than API 0.3.0 drops fields that it does not know, such as the tags. */
function checkAnswer(node: Node, { tags }: Instance): void {
  if (tags[NODE_TAG] === node.nodeId) return;
  throw new SandboxError(
    "CAPABILITY_MISSING",
    "the daemon has dropped the instance's tags; it wants API 0.3.0 or later",
  );
}

/** Rejects once the instance is off: an agent that refuses its configuration exits, and init then powers off. */
async function lookForEnd(node: Node, entry: SandboxEntry): Promise<void> {
  const { state, exitCode, exitMessage } = await node.existing(entry);
  if (state !== "Stopped" && state !== "Shutdown") return;
  const status =
    exitCode === undefined ? "" : ` with status ${exitCode}${exitMessage === undefined ? "" : ` (${exitMessage})`}`;
  throw new SandboxError("AGENT_ENDED", `the agent of ${entry.name} ended before it answered${status}`);
}
