import { setTimeout as pause } from "node:timers/promises";
import { connect, DEFAULT_PORT, type GuestClient } from "../../client/index.ts";
import type { ClientCredentials } from "../../credentials/index.ts";
import { AgentVolumes } from "./agent-volumes.ts";
import { type Subject, whileUp } from "./ending.ts";
import {
  type Instance,
  type InstanceState,
  SandboxError,
  sandboxError,
  type Substrate,
  type Tags,
} from "../substrate/index.ts";
import { awaken, type Awakening, type Freeze, type Patience, type Warning } from "./guest.ts";
import { type AgentSource, CredentialStore } from "./injection.ts";
import type { Journal, JournalEntry, SandboxEntry } from "./journal.ts";
import { compareKeys, hostCpuClass, type RestoreChoices } from "./keys.ts";

const DEFAULT_REACH_MS = 60_000;
const DEFAULT_SETTLE_MS = 30_000;
const SETTLE_PAUSE_MS = 250;
const DEFAULT_LOCK_WAIT_MS = 30_000;
const LOCK_PAUSE_MS = 100;

/** The next step of an operation. */
export interface Step {
  readonly operation: string;
  /** The sandbox or snapshot. */
  readonly name: string;
  readonly step: string;
}

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
  readonly reachMs?: number | undefined;
  /** Time allowed for each hook, in milliseconds. Default: the agent's, 30 s. */
  readonly hookTimeoutMs?: number | undefined;
  /** Whether the session is frozen for a suspension, until the duties. Default: "on". */
  readonly freeze?: Freeze | undefined;
  /** How long to look for the outcome of a call whose answer was lost, in milliseconds. Default: 30 s. */
  readonly settleMs?: number | undefined;
  /** Name of this host's class of processors. Default: a digest of the flags in /proc/cpuinfo. */
  readonly cpuClass?: string | undefined;
  /** How long to wait for another process that works on the same sandbox, in milliseconds. Default: 30 s. */
  readonly lockWaitMs?: number | undefined;
  /** Only read the journal: one that is not there is not made. */
  readonly readOnly?: boolean | undefined;
  /** Called before each step, for progress. */
  readonly onStep?: ((step: Step) => void) | undefined;
}

/** Tags by which a node finds its things. */
export const NODE_TAG = "svc.node_id";
export const JOURNAL_TAG = "svc.journal";
/** Identifies the result of a call whose answer was lost. Forks have their origin's. */
export const OPERATION_TAG = "svc.operation";
/** Id of the agent's volume that a sandbox, its snapshots and forks need. */
export const AGENT_VOLUME_TAG = "svc.agent_volume";

/** Shared by all operations of a node: substrate, journal, credentials, and the rules for lost answers and removal. */
export class Node {
  readonly substrate: Substrate;
  readonly journal: Journal;
  readonly credentials: CredentialStore;
  readonly agents: AgentVolumes;
  readonly patience: Patience;
  readonly freeze: Freeze;
  readonly agentPort: number;
  readonly ingressHost: string;
  readonly daemonFolder: string | undefined;
  readonly nodeId: string;
  /** Folder of journal and credentials. */
  readonly folder: string;
  readonly #options: NodeOptions;
  /** By name: what ends badly if this process ends now. */
  readonly #atRisk = new Map<string, string>();
  /** The last operation of each name, which the next one waits for. */
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(options: NodeOptions, journal: Journal) {
    this.#options = options;
    this.substrate = options.substrate;
    this.journal = journal;
    this.credentials = new CredentialStore(options.folder);
    this.agents = new AgentVolumes(options.substrate, options.agent);
    this.patience = { reachMs: options.reachMs ?? DEFAULT_REACH_MS, hookTimeoutMs: options.hookTimeoutMs ?? 0 };
    this.freeze = options.freeze ?? "on";
    this.agentPort = options.agentPort ?? DEFAULT_PORT;
    this.ingressHost = options.ingressHost ?? "127.0.0.1";
    this.daemonFolder = options.daemonFolder;
    this.nodeId = options.nodeId;
    this.folder = options.folder;
  }

  /** The tags of all that this node makes. */
  get tags(): Tags {
    return { [NODE_TAG]: this.nodeId, [JOURNAL_TAG]: this.journal.id };
  }

  step(operation: string, name: string, step: string): void {
    this.#options.onStep?.({ operation, name, step });
  }

  /** What the end of this process would leave undone or frozen until somebody sweeps. */
  get atRisk(): readonly string[] {
    return [...this.#atRisk].map(([name, why]) => `${name}: ${why}`);
  }

  /** Notes it until its operation ends, or until `why` is undefined. */
  risk(name: string, why: string | undefined): void {
    if (why === undefined) this.#atRisk.delete(name);
    else this.#atRisk.set(name, why);
  }

  /** Waits for a call that changes something. If this process ends before, nobody knows what has become of it. */
  async answered<Value>(name: string, call: () => Promise<Value>): Promise<Value> {
    const before = this.#atRisk.get(name);
    this.risk(name, before ?? "the daemon has not answered yet");
    try {
      return await call();
    } finally {
      this.risk(name, before);
    }
  }

  /**
   * Runs an operation on a sandbox or snapshot once all earlier ones on it have ended, in this process and in others.
   * Rejects with SandboxError, such as SANDBOX_BUSY where another process does not end its own in time.
   */
  async alone<Value>(operation: string, name: string, action: () => Promise<Value>): Promise<Value> {
    const before = this.#turns.get(name) ?? Promise.resolve();
    const turn = before.then(() => this.#locked(operation, name, action));
    const ended = turn.catch(() => undefined);
    this.#turns.set(name, ended);
    try {
      return await turn;
    } catch (error) {
      throw sandboxError(error);
    } finally {
      if (this.#turns.get(name) === ended) this.#turns.delete(name);
    }
  }

  /** Whether a process works on it, so that it is not left over from an earlier one. */
  isBusy(name: string): boolean {
    return this.#turns.has(name) || this.journal.holder(name) !== undefined;
  }

  async #locked<Value>(operation: string, name: string, action: () => Promise<Value>): Promise<Value> {
    const waitMs = this.#options.lockWaitMs ?? DEFAULT_LOCK_WAIT_MS;
    const untilMs = performance.now() + waitMs;
    for (let isFirst = true; ; isFirst = false) {
      const holder = this.journal.take(name, operation);
      if (holder === undefined) break;
      const other = `${holder.operation} of process ${holder.pid}, since ${new Date(holder.sinceMs).toISOString()}`;
      if (performance.now() >= untilMs) {
        throw new SandboxError("SANDBOX_BUSY", `${name} has been busy for ${waitMs} ms with the ${other}`);
      }
      if (isFirst) this.step(operation, name, `wait for the ${other}`);
      await pause(LOCK_PAUSE_MS);
    }
    try {
      return await action();
    } finally {
      this.risk(name, undefined);
      try {
        this.journal.release(name);
      } catch {
        // For example on a full disk. The name then stays this process's for as long as it lives.
      }
    }
  }

  /** The entry of a sandbox or snapshot in any phase. Throws SandboxError (NOT_FOUND). */
  entry(name: string): JournalEntry {
    const entry = this.journal.get(name);
    if (entry !== undefined) return entry;
    throw new SandboxError("NOT_FOUND", `there is no sandbox or snapshot ${JSON.stringify(name)}`);
  }

  /** The entry of a sandbox in any phase. Throws SandboxError (NOT_FOUND). */
  sandbox(name: string): SandboxEntry {
    const entry = this.journal.get(name);
    if (entry?.kind === "sandbox") return entry;
    throw new SandboxError("NOT_FOUND", `there is no sandbox ${JSON.stringify(name)}`);
  }

  /** The instance of a sandbox: by its id, else by name and tags, as other nodes may use the name. Undefined: none. */
  async instanceOf({ name, instanceName = name, instanceId, tags }: SandboxEntry): Promise<Instance | undefined> {
    if (instanceId !== undefined) return this.substrate.instance(instanceId);
    const { [OPERATION_TAG]: operation } = tags;
    const own = { ...this.tags, ...(operation !== undefined && { [OPERATION_TAG]: operation }) };
    return (await this.substrate.instances(own)).find((instance) => instance.name === instanceName);
  }

  /** A sandbox as `ending` needs it. */
  subject(entry: SandboxEntry): Subject {
    return { name: entry.name, substrate: this.substrate, instance: () => this.instanceOf(entry) };
  }

  /** The instance of a sandbox. Rejects with SandboxError (NOT_FOUND) where there is none. */
  async existing(entry: SandboxEntry): Promise<Instance> {
    const instance = await this.instanceOf(entry);
    if (instance !== undefined) return instance;
    throw new SandboxError("NOT_FOUND", `the instance of ${entry.name} is gone; remove the sandbox`);
  }

  /** Looks at an instance until it is as wanted, or the time is up. Resolves with what it is then. */
  async awaited(entry: SandboxEntry, isWanted: (instance: Instance) => boolean, limitMs: number): Promise<Instance> {
    const untilMs = performance.now() + limitMs;
    for (;;) {
      const instance = await this.existing(entry);
      if (isWanted(instance) || performance.now() >= untilMs) return instance;
      await pause(SETTLE_PAUSE_MS);
    }
  }

  /**
   * Makes an instance, or changes its state. Where the answer is lost, looks for the instance, in the wanted state if
   * one is named, until the time is up or the daemon is away. An internal error says as little, because the daemon
   * cancels every call after a minute and answers so. But the call is then over, so one look is enough.
   */
  async changed(entry: SandboxEntry, change: () => Promise<Instance>, wanted?: InstanceState): Promise<Instance> {
    try {
      return await this.answered(entry.name, change);
    } catch (error) {
      if (!isUnknownOutcome(error)) throw error;
      const settleMs = error.code === "SUBSTRATE_FAILED" ? 0 : (this.#options.settleMs ?? DEFAULT_SETTLE_MS);
      const untilMs = performance.now() + settleMs;
      for (;;) {
        const instance = await this.instanceOf(entry).catch(() => {
          throw error;
        });
        if (instance !== undefined && (wanted === undefined ? isUp(instance) : instance.state === wanted))
          return instance;
        if (performance.now() >= untilMs) throw error;
        await pause(SETTLE_PAUSE_MS);
      }
    }
  }

  /** A client of a sandbox's agent, at its present or last known address. Rejects with AGENT_UNREACHABLE. */
  async dial(entry: SandboxEntry, credentials?: ClientCredentials): Promise<GuestClient> {
    const { ip } = await this.existing(entry).catch((error: unknown) => {
      if (entry.lastIp === undefined || !isUnknownOutcome(error)) throw error;
      return { ip: entry.lastIp };
    });
    if (ip === undefined) throw new SandboxError("AGENT_UNREACHABLE", `the instance of ${entry.name} has no address`);
    const own = credentials ?? (await this.credentials.client(entry.name));
    return connect({ address: this.addressOf(entry, ip), ...own });
  }

  /** HOST:PORT of a sandbox's agent. */
  addressOf({ agentPort }: SandboxEntry, ip: string): string {
    return `${ip}:${agentPort}`;
  }

  /**
   * Has a restored sandbox do its duties, POST_RESTORE and Health; from then on it counts as running.
   *
   * @param reachMs for its agent to answer
   */
  async awaken(operation: string, entry: SandboxEntry, reachMs: number = this.patience.reachMs): Promise<Awakening> {
    this.step(operation, entry.name, "duties, POST_RESTORE and Health");
    const awakening = await whileUp(this.subject(entry), (signal) =>
      awaken(() => this.dial(entry), { ...this.patience, reachMs }, signal),
    );
    const { runEpochMs, agentVersion, agentServices } = awakening;
    this.journal.put({ ...entry, runEpochMs, agentVersion, agentServices, asleepBecause: undefined });
    this.risk(entry.name, undefined);
    return awakening;
  }

  /**
   * Rejects with `compareKeys`'s SandboxError if a suspended sandbox or snapshot cannot be restored here. Resolves with
   * the differences that do not prevent it; the journal then has the accepted ones.
   */
  async compareKeys(operation: string, entry: JournalEntry, choices: RestoreChoices): Promise<readonly Warning[]> {
    const { name, keys, hypervisor, agentVersion = "" } = entry;
    this.step(operation, name, "compare the keys");
    const [daemon, images] = await Promise.all([this.substrate.facts(), this.substrate.images()]);
    const present = { daemon, images, hypervisor, agentVersion, cpuClass: await this.cpuClass() };
    const { warning, acceptedBundle } = compareKeys(name, keys, present, choices);
    if (acceptedBundle !== undefined) this.journal.put({ ...entry, acceptedBundle });
    return warning === undefined ? [] : [{ code: "BUNDLE_DIFFERS", message: warning }];
  }

  async cpuClass(): Promise<string> {
    return this.#options.cpuClass ?? (await hostCpuClass());
  }

  /** Rejects with SandboxError (CAPABILITY_MISSING) where the entry's hypervisor lacks the feature. */
  async need(feature: "standby" | "snapshots" | "fork", { name, hypervisor }: JournalEntry): Promise<void> {
    const { features } = await this.substrate.facts();
    if (features === undefined || features.get(hypervisor)?.has(feature) === true) return;
    throw new SandboxError("CAPABILITY_MISSING", `${hypervisor}, which runs ${name}, has no ${feature} on this host`);
  }
}

/** Whether a call may have taken effect although it failed. */
export function isUnknownOutcome(error: unknown): error is SandboxError {
  return error instanceof SandboxError && ["SUBSTRATE_UNAVAILABLE", "SUBSTRATE_FAILED"].includes(error.code);
}

function isUp({ state }: Instance): boolean {
  return state === "Running" || state === "Initializing";
}

/** Name of the folder with the credentials of a fork's origin, with which the fork wakes up. */
export function parentOf(name: string): string {
  return `${name}.parent`;
}

/** The entry if it is ready. Throws SandboxError (WRONG_STATE) while its sandbox or snapshot is made or removed. */
export function ready<Each extends JournalEntry>(entry: Each): Each {
  if (entry.phase === "ready") return entry;
  const message = `${entry.name} is being ${entry.phase === "creating" ? "made" : "removed"}; sweep if nobody does it any more`;
  throw new SandboxError("WRONG_STATE", message);
}
