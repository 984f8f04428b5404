import { randomBytes, randomUUID } from "node:crypto";
import {
  checkPort,
  type Ingress,
  lasting,
  type OperationOptions,
  SandboxError,
  statusOf,
  USUAL_LISTEN_PORT,
} from "../substrate/index.ts";
import {
  isUnknownOutcome,
  type DaemonParts,
  type InstanceParts,
  OPERATION_TAG,
  type Publication,
  type SandboxEntry,
} from "../state/index.ts";
import { ingressAnswers } from "./probe.ts";

const HOSTNAME = /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/;
/**
 * Ports of the daemon's API and of its proxy's admin interface. No ingress may listen on them, because the daemon could
 * then not start again.
 */
const DAEMON_PORTS: ReadonlySet<number> = new Set([4973, 2019]);

/** Options of `publish`. */
export interface PublishOptions extends OperationOptions {
  /** Port of the host on which the ingress listens. Default: 80. */
  readonly listenPort?: number | undefined;
  /** How long to wait until the sandbox answers through the ingress, in milliseconds. Default: do not wait. */
  readonly timeoutMs?: number | undefined;
}

/**
 * Routes a hostname of the daemon's ingress to a port of a sandbox. Idempotent. If it fails, the hostname is not
 * routed.
 */
export async function publish(
  node: InstanceParts,
  entry: SandboxEntry,
  port: number,
  hostname: string,
  { listenPort = USUAL_LISTEN_PORT }: PublishOptions,
): Promise<Publication> {
  checkPublication(entry.agentPort, port, hostname, listenPort);
  const known = publicationOf(entry, hostname, listenPort);
  if (known?.ingressId !== undefined) {
    if (known.port === port) return known;
    const message = `${hostname} is already routed to port ${known.port} of ${entry.name}; unpublish it first`;
    throw new SandboxError("HOSTNAME_IN_USE", message, undefined, { nextStep: "unpublish it, and publish it again" });
  }
  // If there is a publication without an ingress, an earlier attempt did not complete it, so remove it first.
  if (known !== undefined) await withdraw(node, "publish", entry, known);
  const { id: instanceId } = await node.instances.existing(entry);
  const ingress = `${entry.name}-${randomBytes(4).toString("hex")}`;
  const planned: Publication = { hostname, listenPort, port, ingress };
  await noted(node, entry.name, planned);
  try {
    node.step("publish", entry.name, `route ${hostname} to port ${port}`);
    const { id } = await lasting(() => made(node, planned, instanceId));
    return await noted(node, entry.name, { ...planned, ingressId: id });
  } catch (error) {
    // Withdraw the publication. If this fails as well, the next sweep withdraws it.
    const failed = node.journal.sandbox(entry.name);
    await lasting(() => withdraw(node, "publish", failed, planned)).catch(() => undefined);
    throw error;
  }
}

/**
 * Resolves once the sandbox answers through its ingress. Rejects with INGRESS_NOT_SERVED or GUEST_NOT_LISTENING.
 *
 * @param hint asks the guest whether its server listens only on addresses that the ingress cannot reach
 */
export async function served(
  node: DaemonParts,
  name: string,
  publication: Publication,
  timeoutMs: number,
  hint: () => Promise<string | undefined>,
): Promise<void> {
  const { hostname, port } = publication;
  node.step("publish", name, `wait until ${hostname} answers`);
  const problem = await ingressAnswers({ host: node.ingressHost, ...publication, timeoutMs });
  if (problem === undefined) return;
  if (problem.isProxys)
    throw new SandboxError(
      "INGRESS_NOT_SERVED",
      `the daemon has accepted the rule for ${hostname}, but ${problem.said}`,
    );
  const reason = await hint();
  const because = reason === undefined ? "" : `; ${reason}`;
  const message = `${hostname} is routed to port ${port} of ${name}, but after ${timeoutMs} ms ${problem.said}${because}`;
  throw new SandboxError("GUEST_NOT_LISTENING", message);
}

/** Ends a publication. Rejects with NOT_FOUND if the sandbox does not publish that hostname on that port of the host. */
export async function unpublish(
  node: DaemonParts,
  entry: SandboxEntry,
  hostname: string,
  listenPort: number = USUAL_LISTEN_PORT,
): Promise<void> {
  const known = publicationOf(entry, hostname, listenPort);
  if (known === undefined) {
    const own = (entry.published ?? []).map((each) => `${each.hostname}:${each.listenPort}`).join(", ") || "nothing";
    throw new SandboxError(
      "NOT_FOUND",
      `${entry.name} does not publish ${hostname}:${listenPort}; it publishes ${own}`,
    );
  }
  node.step("unpublish", entry.name, `stop routing ${hostname} to the sandbox`);
  await withdraw(node, "unpublish", entry, known);
}

/**
 * Ends all publications of a sandbox. Must be called before the instance is deleted, because an ingress routes by name,
 * also to a later instance of the same name.
 */
export async function withdrawAll(node: DaemonParts, operation: string, entry: SandboxEntry): Promise<void> {
  for (const publication of entry.published ?? []) {
    node.step(operation, entry.name, `delete the ingress of ${publication.hostname}`);
    await withdraw(node, operation, node.journal.sandbox(entry.name), publication);
  }
}

/**
 * Rejects with ALREADY_EXISTS if an ingress of an earlier sandbox with this name still exists, because it would route
 * to the new sandbox. After this check, no such ingress can be created: the daemon refuses an ingress to a name that no
 * instance has (hypeman 8853445, lib/ingress/manager.go:317-320).
 */
export async function requireUnpublished(node: DaemonParts, name: string): Promise<void> {
  const all = await node.allIngresses();
  const found = all.find(({ rules }) => rules.some(({ instance }) => instance === name));
  if (found === undefined) return;
  const hostnames = found.rules.map(({ hostname }) => hostname).join(", ");
  const message = `the ingress ${found.name} of an earlier sandbox ${name} still exists, and would route ${hostnames} to the new sandbox`;
  const nextStep =
    "if this node made that ingress, run sweep, which deletes it; otherwise choose another name, or delete the ingress";
  throw new SandboxError("ALREADY_EXISTS", message, undefined, { nextStep });
}

/** Returns those publications of a sandbox that an earlier process began and did not complete. */
export function unfinished({ published = [] }: SandboxEntry): readonly Publication[] {
  return published.filter(({ ingressId }) => ingressId === undefined);
}

/** Deletes an ingress, and then removes its publication from the journal. */
export async function withdraw(
  node: DaemonParts,
  operation: string,
  { name }: SandboxEntry,
  publication: Publication,
): Promise<void> {
  // An ingress whose id is known need not be looked up, because deleting it succeeds even if it no longer exists.
  const found = publication.ingressId === undefined ? await listed(node, publication) : { id: publication.ingressId };
  if (found !== undefined) {
    try {
      await node.substrate.deleteIngress(found.id);
    } catch (error) {
      // If the ingress is no longer listed, it was deleted, and only the daemon's answer was lost. So ignore the
      // failure. But never ignore a status 500: the daemon may have deleted its record while its proxy still serves the
      // rule (lib/ingress/manager.go:494-518).
      if (statusOf(error) === 500 || (await listed(node, publication)) !== undefined) throw error;
    }
  }
  node.step(operation, name, `remove ${publication.hostname} from the journal`);
  const entry = node.journal.sandbox(name);
  const rest = (entry.published ?? []).filter(({ ingress }) => ingress !== publication.ingress);
  await node.journal.put({ ...entry, published: rest.length === 0 ? undefined : rest });
}

function listed(node: DaemonParts, { ingress, ingressId }: Publication): Promise<Ingress | undefined> {
  const isThis = ({ id, name }: Ingress): boolean => (ingressId === undefined ? name === ingress : id === ingressId);
  return node.substrate.ingresses(node.tags).then((all) => all.find(isThis));
}

/** Creates the ingress. If the answer is lost, searches for the ingress once, by its tags. */
async function made(node: DaemonParts, { ingress: name, ...rule }: Publication, instance: string): Promise<Ingress> {
  const tags = { ...node.tags, [OPERATION_TAG]: randomUUID() };
  try {
    const { hostname, listenPort, port } = rule;
    return await node.substrate.createIngress({ name, tags, rules: [{ hostname, listenPort, instance, port }] });
  } catch (error) {
    if (!isUnknownOutcome(error)) throw error;
    const [found] = await node.substrate.ingresses(tags).catch(() => []);
    if (found === undefined) throw error;
    return found;
  }
}

/** Adds a publication to the journal, or replaces it. */
async function noted(node: DaemonParts, name: string, publication: Publication): Promise<Publication> {
  const entry = node.journal.sandbox(name);
  const others = (entry.published ?? []).filter(({ ingress }) => ingress !== publication.ingress);
  await node.journal.put({ ...entry, published: [...others, publication] });
  return publication;
}

function publicationOf({ published = [] }: SandboxEntry, hostname: string, port: number): Publication | undefined {
  return published.find((each) => each.hostname === hostname && each.listenPort === port);
}

function checkPublication(agentPort: number, port: number, hostname: string, listenPort: number): void {
  checkPort(port, "port");
  checkPort(listenPort, "listenPort");
  if (DAEMON_PORTS.has(listenPort))
    throw new SandboxError("INVALID_SPEC", `listenPort ${listenPort} is used by the daemon itself`);
  if (port === agentPort)
    throw new SandboxError(
      "INVALID_SPEC",
      `port ${port} is the agent's own port, which only the sandbox's node may use`,
    );
  if (typeof hostname === "string" && HOSTNAME.test(hostname)) return;
  // Reject patterns and capital letters. The substrate accepts both, but a pattern routes to all sandboxes, and a name
  // with capitals counts as a different name.
  const message = "hostname must be a name in lowercase without wildcards, such as web.example.com";
  throw new SandboxError("INVALID_SPEC", message);
}
