import { DEFAULT_PORT } from "../../client/index.ts";
import type { Ingress, Substrate, Tags } from "../substrate/index.ts";
import { GuestAccess } from "./access.ts";
import { type AgentSource, AgentVolumes } from "./agent-volumes.ts";
import { Dials } from "./gate.ts";
import type { Freeze } from "./guest.ts";
import { CredentialStore } from "./injection.ts";
import { Instances } from "./instances.ts";
import type { Journal } from "./journal.ts";
import { hostCpuClass } from "./keys.ts";
import { shared } from "./shared.ts";
import { type OnStep, type Step, Turns } from "./turns.ts";

const DEFAULT_REACH_MS = 60_000;

/** Options of a node. */
export interface NodeOptions {
  readonly substrate: Substrate;
  /** Folder of the journal and the credentials, for this node alone; made with mode 0700. */
  readonly folder: string;
  /** Value of the tag `svc.node_id` of all that this node makes. No two nodes of one substrate may have the same. */
  readonly nodeId: string;
  /** The agent to put into sandboxes; without it none can be created. */
  readonly agent?: AgentSource | undefined;
  /** Port of the agent in the sandboxes that are made; the journal keeps it. Default: DEFAULT_PORT. */
  readonly agentPort?: number | undefined;
  /** The daemon's own folder, if it can be read here: it shows what images take of the disk. Default: not known. */
  readonly daemonFolder?: string | undefined;
  /** Address of the daemon's ingress as this node reaches it, to see whether it serves. Default: 127.0.0.1. */
  readonly ingressHost?: string | undefined;
  /** How long an agent may take to answer, booting included, in milliseconds. Default: 60 s. */
  readonly reachTimeoutMs?: number | undefined;
  /** Time allowed for each hook, in milliseconds. Default: the agent's, 30 s. */
  readonly hookTimeoutMs?: number | undefined;
  /** Whether the session is frozen for a suspension, until the duties. Default: "on". */
  readonly freeze?: Freeze | undefined;
  /** How long to look for the outcome of a call whose answer was lost, in milliseconds. Default: 30 s. */
  readonly settleTimeoutMs?: number | undefined;
  /** How long new certificates of sandboxes are valid, in milliseconds. Default: 365 days. */
  readonly credentialLifetimeMs?: number | undefined;
  /** Name of this host's class of processors. Default: a digest of the flags in /proc/cpuinfo. */
  readonly cpuClass?: string | undefined;
  /** How long to wait for another process that works on the same sandbox, in milliseconds. Default: 30 s. */
  readonly lockTimeoutMs?: number | undefined;
  /** Only read the journal: one that is not there is not made. */
  readonly readOnly?: boolean | undefined;
  /** Called before each step, for progress, and while a step sends much. */
  readonly onStep?: ((step: Step) => void) | undefined;
}

/** Tags by which a node finds its things. */
export const NODE_TAG = "svc.node_id";
export const JOURNAL_TAG = "svc.journal";
/** Id of the agent's volume that a sandbox, its snapshots and forks need. */
export const AGENT_VOLUME_TAG = "svc.agent_volume";

/** What operations work with. */
export interface NodeParts {
  readonly nodeId: string;
  /** Folder of journal and credentials. */
  readonly folder: string;
  /** The tags of all that this node makes. */
  readonly tags: Tags;
  readonly substrate: Substrate;
  readonly journal: Journal;
  readonly credentials: CredentialStore;
  readonly agents: AgentVolumes;
  readonly turns: Turns;
  readonly instances: Instances;
  readonly guests: GuestAccess;
  /** All ingresses of the daemon. Callers at the same time share one request. */
  readonly allIngresses: () => Promise<readonly Ingress[]>;
  /** Places for connections that are being made. */
  readonly dials: Dials;
  /** Name of the class of this host's processors. */
  readonly cpuClass: () => Promise<string>;
  readonly ingressHost: string;
  readonly daemonFolder: string | undefined;
  /** Called before each step, for progress. */
  readonly step: OnStep;
}

/** The parts that one operation needs. */
export type Needs<Names extends keyof NodeParts> = Pick<NodeParts, Names>;

/** Puts a node together. */
export function nodeOf(options: NodeOptions, journal: Journal): NodeParts {
  const {
    substrate,
    nodeId,
    folder,
    onStep,
    settleTimeoutMs,
    lockTimeoutMs,
    reachTimeoutMs = DEFAULT_REACH_MS,
  } = options;
  const step: OnStep = (operation, name, what, bytes) =>
    onStep?.({ operation, name, step: what, ...(bytes !== undefined && { bytes }) });
  const tags = { [NODE_TAG]: nodeId, [JOURNAL_TAG]: journal.id };
  const credentials = new CredentialStore(folder, options.credentialLifetimeMs);
  const turns = new Turns(journal, step, lockTimeoutMs);
  const instances = new Instances(substrate, tags, turns, settleTimeoutMs);
  const guests = new GuestAccess({
    patience: { reachTimeoutMs, hookTimeoutMs: options.hookTimeoutMs ?? 0 },
    freeze: options.freeze ?? "on",
    agentPort: options.agentPort ?? DEFAULT_PORT,
    credentials,
    instances,
    journal,
    turns,
    step,
  });
  return {
    nodeId,
    folder,
    tags,
    substrate,
    journal,
    credentials,
    agents: new AgentVolumes(substrate, options.agent),
    turns,
    instances,
    guests,
    allIngresses: shared(() => substrate.ingresses({})),
    dials: new Dials(),
    cpuClass: async () => options.cpuClass ?? hostCpuClass(),
    ingressHost: options.ingressHost ?? "127.0.0.1",
    daemonFolder: options.daemonFolder,
    step,
  };
}

/** Name of the folder with the credentials of a fork's origin, with which the fork wakes up. */
export function parentOf(name: string): string {
  return `${name}.parent`;
}
