import { randomBytes, randomUUID } from "node:crypto";
import { booted } from "./start.ts";
import {
  type DaemonFacts,
  type Image,
  type Instance,
  type InstanceParts,
  ifAmbiguous,
  randomName,
  SandboxError,
  type SandboxSpec,
  sizeBytesOf,
} from "../substrate/index.ts";
import { listedImage, notReady, unknownImage } from "./images.ts";
import { requireUnpublished } from "./ingress.ts";
import {
  AGENT_VOLUME_TAG,
  agentEnvironment,
  bundleOf,
  JOURNAL_TAG,
  mounts,
  type DaemonParts,
  NODE_TAG,
  type NodeParts,
  OPERATION_TAG,
  type SandboxEntry,
} from "../state/index.ts";
import { createOrDiscard } from "./removal.ts";

const OPERATION = "create";
/**
 * If an image's command begins with one of these programs, the substrate boots the instance with that program as init,
 * and ignores the entrypoint that starts the agent (hypeman, lib/images/systemd.go).
 */
const OWN_INITS: ReadonlySet<string> = new Set(["/sbin/init", "/lib/systemd/systemd", "/usr/lib/systemd/systemd"]);

/** Creates a sandbox from a validated specification. If a step fails, everything created so far is removed. */
export async function create(node: NodeParts, spec: SandboxSpec): Promise<SandboxEntry> {
  const name = spec.name ?? randomName("sandbox");
  return node.operations.exclusive(OPERATION, name, async () => {
    const entry = await plan(node, name, spec);
    return createOrDiscard(node, OPERATION, entry, () => build(node, entry, spec));
  });
}

/** Checks everything that can be checked in advance, and composes the journal entry. Creates nothing. */
async function plan(node: NodeParts, name: string, spec: SandboxSpec): Promise<SandboxEntry> {
  node.journal.requireFree(name);
  node.step(OPERATION, name, "check the image and the daemon");
  const [daemon, image] = await Promise.all([node.substrate.facts(), node.substrate.image(spec.image)]);
  const { digest } = await suitableImage(node, image, spec.image);
  const hypervisor = spec.hypervisor ?? daemon.defaultHypervisor ?? "unknown";
  checkHypervisor(daemon, hypervisor, spec);
  await checkSizes(node, spec);
  await requireUnpublished(node, name);
  const { id: agentVolumeId } = await node.agents.own();
  return {
    kind: "sandbox",
    name,
    phase: "creating",
    createdMs: Date.now(),
    image: spec.image,
    hypervisor,
    volumeId: await freeVolumeId(node, name),
    agentVolumeId,
    agentPort: node.guests.agentPort,
    ttlMs: spec.ttlMs,
    idleAction: spec.idleAction ?? "none",
    keys: { template: digest, bundle: bundleOf(hypervisor, daemon.version, ""), cpuClass: await node.cpuClass() },
    tags: { ...spec.tags, ...node.tags, [OPERATION_TAG]: randomUUID(), [AGENT_VOLUME_TAG]: agentVolumeId },
  };
}

/**
 * Chooses the id of the credential volume, usually NAME-credentials. If this node already has a volume with that id,
 * returns a random id: snapshots or forks of an earlier sandbox of this name still use the volume, or the daemon has
 * not deleted it. If the volume belongs to another node, returns the usual id, so that the creation fails and reports
 * that two nodes use the same name.
 */
async function freeVolumeId({ journal, substrate }: DaemonParts, name: string): Promise<string> {
  const usual = `${name}-credentials`;
  const isTaken =
    journal.all().some(({ volumeId }) => volumeId === usual) ||
    (await substrate.volume(usual))?.tags[JOURNAL_TAG] === journal.id;
  return isTaken ? `${name}-cred-${randomBytes(4).toString("hex")}` : usual;
}

async function suitableImage(node: DaemonParts, found: Image | undefined, name: string): Promise<Image> {
  const all = found?.status === "ready" ? [] : await node.substrate.images();
  const image = found ?? listedImage(all, name);
  if (image === undefined) throw unknownImage(name);
  if (image.status !== "ready") throw notReady(image, all);
  const [first = ""] = [...(image.entrypoint ?? []), ...(image.cmd ?? [])];
  if (!OWN_INITS.has(first)) return image;
  const message = `the substrate starts ${first} of the image ${name} as the guest's init, so the agent cannot be started`;
  throw new SandboxError("IMAGE_UNSUITABLE", message);
}

/**
 * Throws SandboxError (CAPABILITY_MISSING) for hypervisor features that this host lacks, because the daemon would at
 * best answer such a request with an internal error.
 */
function checkHypervisor({ features }: DaemonFacts, hypervisor: string, { idleAction }: SandboxSpec): void {
  if (features === undefined) return;
  const own = features.get(hypervisor);
  if (own === undefined) {
    const there = [...features.keys()].join(", ") || "none";
    throw new SandboxError(
      "CAPABILITY_MISSING",
      `the daemon cannot start ${hypervisor} on this host; it can start: ${there}`,
    );
  }
  if (idleAction === "standby" && !own.has("standby"))
    throw new SandboxError(
      "CAPABILITY_MISSING",
      `idleAction requires standby, which ${hypervisor} does not support on this host`,
    );
}

/** Rejects with SandboxError (CAPABILITY_MISSING) if a requested size is larger than the total that the host has. */
async function checkSizes(
  node: DaemonParts,
  { vcpus = 0, memory = "0B", overlaySize = "0B" }: SandboxSpec,
): Promise<void> {
  const capacity = await node.substrate.capacity();
  for (const [field, wanted, most] of [
    ["vcpus", vcpus, capacity.vcpus],
    ["memory", sizeBytesOf(memory) ?? 0, capacity.memoryBytes],
    // 0 means that the daemon does not report its disk size.
    ["overlaySize", sizeBytesOf(overlaySize) ?? 0, capacity.diskBytes || Infinity],
  ] as const) {
    if (wanted <= most) continue;
    const message = `${field} is ${amount(field, wanted)}, but the host has only ${amount(field, most)} for all sandboxes`;
    throw new SandboxError("CAPABILITY_MISSING", message);
  }
}

function amount(field: string, value: number): string {
  return field === "vcpus" ? `${value} processors` : `${Number((value / 2 ** 20).toFixed(1))} MiB`;
}

/** The daemon's default limits per instance, which its operator may have changed (hypeman 8853445, config.go). */
const USUAL_LIMITS = [
  ["vcpus", 16, "limits.max_vcpus_per_instance"],
  ["memory", 32 * 2 ** 30, "limits.max_memory_per_instance"],
  ["overlaySize", 100 * 2 ** 30, "limits.max_overlay_size"],
] as const;

/**
 * Explains an internal error that probably comes from the daemon's own limits per instance. The daemon itself does not
 * report the reason (lib/instances/create.go:197-210).
 */
function withLimits(error: unknown, { vcpus = 0, memory = "0B", overlaySize = "0B" }: SandboxSpec): unknown {
  if (!(error instanceof SandboxError) || error.code !== "SUBSTRATE_FAILED") return error;
  const wanted = { vcpus, memory: sizeBytesOf(memory) ?? 0, overlaySize: sizeBytesOf(overlaySize) ?? 0 };
  const over = USUAL_LIMITS.find(([field, most]) => wanted[field] > most);
  if (over === undefined) return error;
  const [field, most, key] = over;
  const limit = `the daemon's limit for an instance (by default ${amount(field, most)})`;
  const message = `${field} is ${amount(field, wanted[field])}, which may exceed ${limit}: ${error.message}`;
  const nextStep = `ask for less, or raise ${key} in the daemon's configuration`;
  return new SandboxError("CAPABILITY_MISSING", message, error, { nextStep });
}

async function build(node: NodeParts, entryBefore: SandboxEntry, spec: SandboxSpec): Promise<SandboxEntry> {
  let planned = entryBefore;
  const { name, tags, volumeId } = planned;
  node.step(OPERATION, name, "issue credentials");
  await node.credentials.issue(name);
  node.step(OPERATION, name, "create the credential volume");
  const archive = await node.credentials.archive(name, spec.process ?? {}, spec.hooks ?? {});
  const agent = await node.agents.own();
  // Create this volume before the agent's volume is looked up. A concurrent sweep that sees this volume then keeps the
  // agent's volume.
  await node.substrate.createVolume({ id: volumeId, tags: { ...node.tags, [AGENT_VOLUME_TAG]: agent.id } }, archive);
  let parts: InstanceParts = {
    name,
    entrypoint: agent.entrypoint,
    env: agentEnvironment(node.guests.agentPort),
    tags,
    volumes: mounts(agent.id, volumeId),
  };
  const start = async (): Promise<Instance> => {
    const providing = "create the agent's volume, unless it exists";
    node.step(OPERATION, name, providing);
    await node.agents.provide((sent, total) => node.step(OPERATION, name, providing, { sent, total }));
    node.step(OPERATION, name, "create the instance");
    return node.instances.changed(planned, () => node.substrate.createInstance(spec, parts));
  };
  const startBesideGhost = async (): Promise<Instance> => {
    const instanceName = `${name}-${randomBytes(4).toString("hex")}`;
    planned = { ...planned, instanceName };
    await node.journal.put(planned);
    parts = { ...parts, name: instanceName };
    return start();
  };
  const sinceMs = Date.now();
  const instance = await start().catch(async (error: unknown) => {
    if (await isAgentSwept(node, agent.id, error)) return start();
    if (await isGhosts(node, name, error)) return startBesideGhost();
    throw withLimits(error, spec);
  });
  const entry = { ...planned, instanceId: instance.id, hypervisor: instance.hypervisor ?? planned.hypervisor };
  await node.journal.put(entry);
  checkAnswer(node, instance);
  node.step(OPERATION, name, "wait for the agent");
  const ready: SandboxEntry = { ...entry, phase: "ready", ...(await booted(node, entry, sinceMs)) };
  node.step(OPERATION, name, "record that the sandbox is ready");
  await node.journal.put(ready);
  return ready;
}

/**
 * Whether the creation failed because another node's sweep has removed the volume with the agent. A sweep removes that
 * volume as unused if no credential volume refers to it yet, that is, if this sandbox's own volume does not exist yet.
 */
async function isAgentSwept(node: DaemonParts, id: string, error: unknown): Promise<boolean> {
  if (!(error instanceof SandboxError) || error.code !== "SUBSTRATE_FAILED") return false;
  return (await node.substrate.volume(id).catch(() => ({ id }))) === undefined;
}

/**
 * Whether the daemon refused the name only because of an orphaned record: the daemon lists an instance of that name,
 * but answers 404 when the instance is requested.
 */
async function isGhosts({ substrate }: DaemonParts, name: string, error: unknown): Promise<boolean> {
  if (!(error instanceof SandboxError) || error.code !== "ALREADY_EXISTS") return false;
  const named = (await substrate.instances({})).filter((instance) => instance.name === name);
  // The daemon answers 409 if an id matches several instances. For an orphaned record, the daemon may answer either 404
  // or 409, so treat both answers alike.
  const found = await Promise.all(named.map(({ id }) => substrate.instance(id).catch(ifAmbiguous)));
  return named.length > 0 && found.every((instance) => instance?.name !== name);
}

/**
 * Throws if the daemon dropped the tags. A daemon older than API 0.3.0 ignores fields that it does not know, and a
 * sandbox without tags could not be found again.
 */
function checkAnswer(node: DaemonParts, { tags }: Instance): void {
  if (tags[NODE_TAG] === node.nodeId) return;
  throw new SandboxError(
    "CAPABILITY_MISSING",
    "the daemon has dropped the instance's tags; update it to API 0.3.0 or later",
  );
}
