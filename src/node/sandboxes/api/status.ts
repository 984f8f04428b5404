import type { NodeParts } from "../state/index.ts";
import type { Capacity } from "../substrate/index.ts";
import { expiring } from "./rotation.ts";

/** Credentials that expire within this time are listed in `status`. */
const SOON_MS = 30 * 86_400_000;

/**
 * The node's features and its host's resources. A feature that the substrate accepts but ignores is reported as
 * missing.
 */
export interface NodeStatus {
  /** Whether egress policies are enforced. Always false, because the substrate accepts such policies but ignores them. */
  readonly egressControl: false;
  /** Whether a snapshot leaves the sandbox running. Always false, because this substrate suspends the sandbox. */
  readonly liveCheckpoint: false;
  readonly daemonVersion: string;
  /**
   * Maps the name of each hypervisor that can be started to its features. Empty if the daemon does not have
   * /capabilities.
   */
  readonly hypervisors: Readonly<Record<string, readonly string[]>>;
  /** Version of the daemon's API; undefined if the daemon does not report it. */
  readonly apiVersion: string | undefined;
  /** The hypervisor of sandboxes whose specification names none; undefined if the daemon does not report it. */
  readonly defaultHypervisor: string | undefined;
  /** Whether the daemon has /capabilities. If not, a missing feature is noticed only when an operation fails. */
  readonly hasCapabilities: boolean;
  readonly capacity: Capacity;
  /** Sandboxes whose credentials expire within 30 days by the host's clock. The earliest expiry comes first. */
  readonly expiring: readonly { readonly name: string; readonly expireMs: number }[];
}

/** Implements `Sandboxes.status`. */
export async function nodeStatus(node: NodeParts): Promise<NodeStatus> {
  const { substrate } = node;
  await substrate.health();
  const [facts, capacity] = await Promise.all([substrate.facts(), substrate.capacity()]);
  const { version, apiVersion, defaultHypervisor, features } = facts;
  return {
    egressControl: false,
    liveCheckpoint: false,
    daemonVersion: version,
    apiVersion,
    defaultHypervisor,
    hypervisors: Object.fromEntries([...(features ?? [])].map(([name, each]) => [name, [...each].toSorted()])),
    hasCapabilities: features !== undefined,
    capacity,
    expiring: await expiring(node, SOON_MS),
  };
}
