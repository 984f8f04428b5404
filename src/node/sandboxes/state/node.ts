import { DEFAULT_PORT } from "../../client/index.ts";
import {
  checkDuration,
  checkLimit,
  checkPort,
  type Ingress,
  type Substrate,
  type Tags,
  throwIfAborted,
} from "../substrate/index.ts";
import { GuestAccess } from "./access.ts";
import { type AgentSource, AgentVolumes } from "./agent-volumes.ts";
import { Dials, Turns } from "./gate.ts";
import type { Freeze } from "./guest.ts";
import { CredentialStore } from "./injection.ts";
import { Instances } from "./instances.ts";
import type { Journal } from "./journal.ts";
import { hostCpuClass } from "./keys.ts";
import { shared } from "./shared.ts";
import { type OnStep, type Step, OperationQueue } from "./operation-queue.ts";

const DEFAULT_REACH_MS = 60_000;

/** Options of `Sandboxes.open`. */
export interface NodeOptions {
  readonly substrate: Substrate;
  /** Directory of the journal and the credentials, used by this node alone; created with mode 0700. */
  readonly stateDirectory: string;
  /**
   * Value of the tag `svc.node_id` on everything that this node creates. It must be unique among the nodes of a
   * substrate.
   */
  readonly nodeId: string;
  /**
   * The agent to install in sandboxes, as an archive that `npm run build` of the project makes. Without it, no sandbox
   * can be created; all other operations work.
   */
  readonly agent?: AgentSource | undefined;
  /** Port of the agent in newly created sandboxes; the journal records it. Default: DEFAULT_PORT. */
  readonly agentPort?: number | undefined;
  /**
   * The daemon's data directory, in which the disk space of images is measured. This process must be able to read it.
   * Default: none, so that the disk space is not known.
   */
  readonly daemonDirectory?: string | undefined;
  /**
   * Host at which this node reaches the daemon's ingress. After a publication, the node requests the hostname there, to
   * check that the ingress serves it. Default: 127.0.0.1.
   */
  readonly ingressHost?: string | undefined;
  /** How long an agent may take to answer, including the boot, in milliseconds. Default: 60 s. */
  readonly reachTimeoutMs?: number | undefined;
  /** Timeout of each hook, in milliseconds. Default: the agent's own default, 30 s. */
  readonly hookTimeoutMs?: number | undefined;
  /** Whether sessions are frozen for a suspension until the restore steps are done. Default: "on". */
  readonly freeze?: Freeze | undefined;
  /** How long to look for the outcome of a call whose answer was lost, in milliseconds. Default: 30 s. */
  readonly settleTimeoutMs?: number | undefined;
  /** How long new certificates of sandboxes are valid, in milliseconds. Default: 365 days. */
  readonly credentialLifetimeMs?: number | undefined;
  /** Name of this host's CPU class. Default: a digest of the flags in /proc/cpuinfo. */
  readonly cpuClass?: string | undefined;
  /** How long to wait for another process that works on the same sandbox, in milliseconds. Default: 30 s. */
  readonly lockTimeoutMs?: number | undefined;
  /** Open the journal read-only and do not create a missing one. */
  readonly readOnly?: boolean | undefined;
  /** Called before each step, and repeatedly during an upload, to show progress. */
  readonly onStep?: ((step: Step) => void) | undefined;
}

/** Tags that a node gives to all objects that it creates at the substrate, so that it can find them later. */
export const NODE_TAG = "svc.node_id";
export const JOURNAL_TAG = "svc.journal";
/** Tag with the id of the agent volume that a sandbox, its snapshots and its forks need. */
export const AGENT_VOLUME_TAG = "svc.agent_volume";

/** The parts of a node that concern the daemon and the journal. */
export interface DaemonParts {
  readonly nodeId: string;
  /** Directory of the journal and the credentials. */
  readonly stateDirectory: string;
  /** The tags on everything that this node creates. */
  readonly tags: Tags;
  readonly substrate: Substrate;
  readonly journal: Journal;
  /** Lists all ingresses of the daemon. Concurrent callers share one request. */
  readonly allIngresses: () => Promise<readonly Ingress[]>;
  readonly cpuClass: () => Promise<string>;
  readonly ingressHost: string;
  readonly daemonDirectory: string | undefined;
  /** Called before each step, to show progress. Throws SandboxError if the operation is aborted. */
  readonly step: OnStep;
}

/** DaemonParts, and the parts that operations use to create, change and remove instances. */
export interface InstanceParts extends DaemonParts {
  readonly credentials: CredentialStore;
  readonly agents: AgentVolumes;
  readonly operations: OperationQueue;
  readonly instances: Instances;
}

/** All parts of a node: InstanceParts, and the parts with which operations call the agents in the guests. */
export interface NodeParts extends InstanceParts {
  readonly guests: GuestAccess;
  /** Limits how many connections to agents are being established at the same time. */
  readonly dials: Dials;
}

/** Checks the times and the port in the options. Infinity means no limit. Throws SandboxError (INVALID_SPEC). */
export function checkNumbers(options: NodeOptions): void {
  const { reachTimeoutMs, settleTimeoutMs, lockTimeoutMs, hookTimeoutMs, credentialLifetimeMs } = options;
  for (const [field, limitMs] of Object.entries({ reachTimeoutMs, settleTimeoutMs, lockTimeoutMs }))
    checkLimit(limitMs, field);
  for (const [field, durationMs] of Object.entries({ hookTimeoutMs, credentialLifetimeMs }))
    checkDuration(durationMs, field);
  if (options.agentPort !== undefined) checkPort(options.agentPort, "agentPort");
}

/** Creates the objects that all operations of a node share. */
export function nodeOf(options: NodeOptions, journal: Journal): NodeParts {
  const {
    substrate,
    nodeId,
    stateDirectory,
    onStep,
    settleTimeoutMs,
    lockTimeoutMs,
    reachTimeoutMs = DEFAULT_REACH_MS,
  } = options;
  const step: OnStep = (operation, name, what, bytes) => {
    onStep?.({ operation, name, step: what, ...(bytes !== undefined && { bytes }) });
    throwIfAborted();
  };
  const tags = { [NODE_TAG]: nodeId, [JOURNAL_TAG]: journal.id };
  const credentials = new CredentialStore(stateDirectory, options.credentialLifetimeMs);
  const operations = new OperationQueue(journal, step, lockTimeoutMs);
  const turns = new Turns();
  const instances = new Instances(substrate, tags, operations, turns, settleTimeoutMs);
  const guests = new GuestAccess({
    patience: { reachTimeoutMs, hookTimeoutMs: options.hookTimeoutMs ?? 0 },
    freeze: options.freeze ?? "on",
    agentPort: options.agentPort ?? DEFAULT_PORT,
    credentials,
    instances,
    journal,
    operations,
    turns,
    step,
  });
  return {
    nodeId,
    stateDirectory,
    tags,
    substrate,
    journal,
    credentials,
    agents: new AgentVolumes(substrate, options.agent),
    operations,
    instances,
    guests,
    allIngresses: shared(() => substrate.ingresses({})),
    dials: new Dials(),
    cpuClass: async () => options.cpuClass ?? hostCpuClass(),
    ingressHost: options.ingressHost ?? "127.0.0.1",
    daemonDirectory: options.daemonDirectory,
    step,
  };
}

/**
 * Name of the second credential directory of a fork. It contains the credentials of the fork's origin, because the fork
 * wakes up with these.
 */
export function parentOf(name: string): string {
  return `${name}.parent`;
}
