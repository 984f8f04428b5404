import { connect, type GuestClient, PortScope } from "../../client/index.ts";
import {
  create,
  discard,
  fork,
  type ForkOptions,
  type ImageInfo,
  imageInfos,
  publish,
  type PublishOptions,
  resume,
  type ResumeOptions,
  rotate,
  served,
  settled,
  snapshot,
  standby,
  stop,
  type Stopping,
  type SuspendOptions,
  type Suspension,
  unpublish,
} from "../operations/index.ts";
import {
  type Capacity,
  checkName,
  checkNodeId,
  checkSpec,
  type Instance,
  type InstanceState,
  randomName,
  SandboxError,
  sandboxError,
  type SandboxSpec,
} from "../substrate/index.ts";
import {
  addressOf,
  type Awakening,
  bounded,
  CALL_MS,
  isOff,
  Journal,
  loadSqlite,
  nodeOf,
  type NodeOptions,
  type NodeParts,
  type Publication,
  ready,
  reasonOfEnd,
  type SandboxEntry,
  type SnapshotEntry,
  taken,
} from "../node/index.ts";
import { ownEntry, ownSandbox } from "./own.ts";
import { reach, type Reach } from "./reach.ts";
import { expiring, rotateAll, type RotateAllOptions, type RotationReport } from "./rotation.ts";
import { sweep, type SweepOptions, type SweepPlan, sweepPlan } from "./sweep.ts";
import type { SweepReport } from "./sweep-report.ts";
import { UsageReader } from "./usage.ts";
import { watch, type WatchOptions } from "./watch.ts";

/** Credentials that expire sooner are reported. */
const SOON_MS = 30 * 86_400_000;
/** Requests to the daemon for what a listing lacks. */
const REQUESTS_AT_A_TIME = 16;

/** A sandbox, as this node knows it. Operations need one whose phase is "ready". */
export interface SandboxInfo extends SandboxEntry {
  /** State of its instance at the substrate; undefined: there is no instance. */
  readonly state: InstanceState | undefined;
  /** Of "Unknown", why the daemon cannot tell the state, in its words. */
  readonly stateError?: string | undefined;
  /** Only from `get`: when its credentials expire, by the host's clock, in milliseconds of the epoch. */
  readonly credentialsExpireMs?: number | undefined;
  /** Only from `get`, and in the guest's words: why its agent has ended, such as "the workload ran out of memory". */
  readonly endedBecause?: string | undefined;
  /** HOST:PORT of its agent. */
  readonly address: string | undefined;
  /** Folder of its credentials, as `guestctl --credentials` takes it. */
  readonly credentials: string;
}

/** This node: what it can do, and what its host has. The substrate accepts more than it carries out. */
export interface NodeStatus {
  /** The substrate accepts an egress policy and enforces none. */
  readonly egressControl: false;
  /** The substrate suspends a sandbox to take a snapshot of it. */
  readonly liveCheckpoint: false;
  readonly daemonVersion: string;
  /** Features of the hypervisors that can be started, by name; none where the daemon is older than /capabilities. */
  readonly hypervisors: Readonly<Record<string, readonly string[]>>;
  /** Undefined: the daemon does not report it, as one without /capabilities. */
  readonly apiVersion: string | undefined;
  /** Default hypervisor; undefined as above. */
  readonly defaultHypervisor: string | undefined;
  /** Whether the daemon has /capabilities: without, what a hypervisor cannot do shows when it is asked to. */
  readonly hasCapabilities: boolean;
  readonly capacity: Capacity;
  /** Sandboxes whose credentials expire within 30 days, the first first, by the host's clock. */
  readonly expiring: readonly { readonly name: string; readonly expireMs: number }[];
}

/**
 * The sandboxes of one node: instances of the substrate with the agent inside, from their creation to their removal.
 * Operations on one sandbox wait for each other, also those of other processes. Every method rejects with
 * SandboxError.
 */
export class Sandboxes {
  readonly #node: NodeParts;

  private constructor(node: NodeParts) {
    this.#node = node;
  }

  /** Rejects with MISSING_PACKAGE where this Node cannot keep a journal: what a program checks before all else. */
  static async checkRuntime(): Promise<void> {
    await loadSqlite();
  }

  /** Opens the node's journal until `close`, beside any other process that has it open. Makes no call. */
  static async open(options: NodeOptions): Promise<Sandboxes> {
    checkNodeId(options.nodeId);
    return new Sandboxes(nodeOf(options, await Journal.open(options.folder, options.readOnly === true)));
  }

  /** Names of the sandboxes in a journal, without a call. */
  static async names(folder: string): Promise<readonly string[]> {
    const journal = await Journal.open(folder, true);
    try {
      return journal.all().flatMap(({ kind, name }) => (kind === "sandbox" ? [name] : []));
    } finally {
      journal.close();
    }
  }

  /** Asks the daemon for its state, its features and its host's resources. */
  async status(): Promise<NodeStatus> {
    const { substrate } = this.#node;
    await asSandboxError(substrate.health());
    const [facts, capacity] = await asSandboxError(Promise.all([substrate.facts(), substrate.capacity()]));
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
      expiring: await expiring(this.#node, SOON_MS),
    };
  }

  /** The images of the substrate, all nodes' included, with what to do about those that are not ready. */
  async images(): Promise<readonly ImageInfo[]> {
    return imageInfos(await asSandboxError(this.#node.substrate.images()), this.#node.daemonFolder);
  }

  /** Makes a sandbox and waits for its agent's Health. Where that fails, nothing of it is left. */
  async create(spec: SandboxSpec): Promise<SandboxInfo> {
    checkSpec(spec);
    return this.#info(await create(this.#node, spec));
  }

  /** A sandbox; of one that is off also why, by its whole console. */
  async get(name: string): Promise<SandboxInfo> {
    const entry = await ownSandbox(this.#node, name);
    const credentialsExpireMs = await this.#node.credentials.expiryMs(name).catch(() => undefined);
    const info = { ...(await this.#info(entry)), credentialsExpireMs };
    const { instanceId, state } = info;
    if (instanceId === undefined || state === undefined || !isOff({ state })) return info;
    return { ...info, endedBecause: await reasonOfEnd(this.#node.substrate, instanceId) };
  }

  /** All sandboxes of this node, in the order of their creation. */
  async list(): Promise<readonly SandboxInfo[]> {
    const entries = this.#node.journal.all().filter((entry) => entry.kind === "sandbox");
    if (entries.length === 0) return [];
    const { instances } = this.#node;
    const listed = await asSandboxError(instances.listed());
    const infos = new Map<string, SandboxInfo>();
    await bounded(entries, REQUESTS_AT_A_TIME, async (entry) => {
      infos.set(entry.name, this.#infoOf(entry, await asSandboxError(instances.findIn(listed, entry))));
    });
    return entries.flatMap(({ name }) => infos.get(name) ?? []);
  }

  /** All snapshots of this node, in the order of their creation. */
  snapshots(): readonly SnapshotEntry[] {
    return this.#node.journal.all().filter((entry) => entry.kind === "snapshot");
  }

  /** A client of its agent, to be closed by the caller. WRONG_STATE while it sleeps, and before its duties are done. */
  async connect(name: string): Promise<GuestClient> {
    const { address } = await this.reach(name);
    return connect({ address, ...(await asSandboxError(this.#node.credentials.client(name))) });
  }

  /** Reads what all running sandboxes use, for Prometheus and the like. To be disposed of by the caller. */
  usageReader(): UsageReader {
    return new UsageReader(this);
  }

  /** Where its agent answers, for a program of another kind; errors name the command that makes it answer. */
  reach(name: string): Promise<Reach> {
    return asSandboxError(reach(this.#node, name));
  }

  /**
   * Runs PRE_SNAPSHOT, freezes the session until the duties, and suspends the sandbox to disk, however the hook ends.
   * Resolves with the outcome of hook and freeze.
   */
  standby(name: string, options: SuspendOptions = {}): Promise<Suspension> {
    return this.#alone("standby", name, (entry) => standby(this.#node, entry, options));
  }

  /**
   * Compares the keys, restores, and runs duties, POST_RESTORE and Health. Undefined: it was stopped, and has booted
   * anew.
   */
  resume(name: string, options: ResumeOptions = {}): Promise<Awakening | undefined> {
    return this.#alone("resume", name, (entry) => resume(this.#node, entry, options));
  }

  /**
   * Gives a running sandbox a new authority, certificates and token, and removes the old ones. Connections with the old
   * ones end within seconds. Repeat it after a failure or crash: it goes on where it was.
   */
  async rotate(name: string): Promise<SandboxInfo> {
    return this.#info(await this.#alone("rotate", name, (entry) => rotate(this.#node, entry)));
  }

  /** The same for all that run, or those whose credentials are older than `olderThanMs`, eight at a time. */
  rotateAll(options: RotateAllOptions = {}): Promise<RotationReport> {
    return asSandboxError(rotateAll(this.#node, options));
  }

  /** Stops it: the workload gets all of its grace, or a warning says why not; disks stay. `resume` boots it anew. */
  stop(name: string): Promise<Stopping> {
    return this.#alone("stop", name, (entry) => stop(this.#node, entry));
  }

  /**
   * Runs PRE_SNAPSHOT, freezes the session and takes a snapshot, for which the sandbox is suspended; then it does its
   * duties. Where it does not wake up, the snapshot stays: it may be all that is left of the sandbox.
   *
   * @param options.live asks for a snapshot without suspension, which this substrate cannot take: CAPABILITY_MISSING
   */
  async snapshot(
    name: string,
    options: SuspendOptions & { readonly name?: string | undefined; readonly live?: boolean | undefined } = {},
  ): Promise<{ readonly snapshot: SnapshotEntry; readonly awakening: Awakening }> {
    if (options.live === true) {
      const message = "the substrate suspends what it takes a snapshot of (liveCheckpoint is false)";
      throw new SandboxError("CAPABILITY_MISSING", message);
    }
    const own = this.#newName(options.name, "snapshot");
    return this.#alone("snapshot", name, (entry) =>
      this.#node.turns.alone("snapshot", own, () => snapshot(this.#node, entry, own, options)),
    );
  }

  /**
   * Makes another running sandbox from a sandbox or a snapshot, with its own credentials and randomness and the current
   * time. A source that runs is suspended meanwhile, and then does its duties (`source`).
   */
  async fork(
    from: string,
    options: ForkOptions = {},
  ): Promise<{ readonly sandbox: SandboxInfo; readonly awakening: Awakening; readonly source: Awakening | undefined }> {
    const own = this.#newName(options.name, "sandbox");
    const { fork: made, ...rest } = await this.#node.turns.alone("fork", from, async () => {
      const found = ready(await ownEntry(this.#node, from));
      const parent = found.kind === "sandbox" ? await settled(this.#node, found) : found;
      return this.#node.turns.alone("fork", own, () => fork(this.#node, parent, own, options));
    });
    return { sandbox: await this.#info(made), ...rest };
  }

  /**
   * Makes the daemon's ingress lead requests for a hostname to a port of a sandbox, until the sandbox is removed or
   * `unpublish` ends that. The hostname is in `published` of `get` and `list`. Repeating it changes nothing, so that a
   * wait can be repeated. Rejects with HOSTNAME_IN_USE; with INGRESS_NOT_SERVED or GUEST_NOT_LISTENING the publication
   * stays if only the wait failed. The result's `warning` says that the server listens where the ingress does not
   * come.
   *
   * @param port in the sandbox, where a server listens on all addresses
   */
  async publish(
    name: string,
    port: number,
    hostname: string,
    options: PublishOptions = {},
  ): Promise<Publication & { readonly warning?: string | undefined }> {
    const made = await this.#alone("publish", name, (entry) => publish(this.#node, entry, port, hostname, options));
    const hint = (): Promise<string | undefined> => this.#loopbackOnly(name, port).catch(() => undefined);
    if (options.timeoutMs !== undefined) await served(this.#node, name, made, options.timeoutMs, hint);
    const warning = options.timeoutMs === undefined ? await hint() : undefined;
    return warning === undefined ? made : { ...made, warning };
  }

  /** That whoever listens on a port does on the loopback only; undefined where nobody does, or one elsewhere. */
  async #loopbackOnly(name: string, port: number): Promise<string | undefined> {
    using client = await this.connect(name);
    const { ports } = await client.listPorts({ timeoutMs: CALL_MS });
    const own = ports.filter((one) => one.port === port);
    const [first] = own;
    if (first === undefined || own.some(({ scope }) => scope !== PortScope.LOOPBACK)) return undefined;
    return `its server listens at ${first.address} only, where the ingress does not come; have it listen at 0.0.0.0`;
  }

  /** Ends a publication. @param listenPort the host's port that it listens on. Default: 80 */
  unpublish(name: string, hostname: string, listenPort?: number): Promise<void> {
    return this.#alone("unpublish", name, (entry) => unpublish(this.#node, entry, hostname, listenPort));
  }

  /** Removes a sandbox or a snapshot in any state, with its credentials, and their volume unless a fork has it. */
  remove(name: string): Promise<void> {
    return this.#node.turns.alone("remove", name, async () =>
      discard(this.#node, "remove", await ownEntry(this.#node, name)),
    );
  }

  /** Removes what earlier processes have left behind, at the substrate and here. */
  sweep(options: SweepOptions = {}): Promise<SweepReport> {
    return asSandboxError(sweep(this.#node, options));
  }

  /** What a sweep would work on now. Changes nothing. */
  sweepPlan({ takeOver = false }: Pick<SweepOptions, "takeOver"> = {}): Promise<SweepPlan> {
    return asSandboxError(sweepPlan(this.#node, takeOver));
  }

  /** Carries out TTLs and idle actions until the signal is aborted. */
  watch(options: WatchOptions): Promise<void> {
    return watch(this.#node, options);
  }

  /**
   * What the end of this process would leave undone or frozen until somebody sweeps, in words; undefined: nothing was
   * changed yet, and nothing is to be undone.
   */
  get atRisk(): readonly string[] | undefined {
    const risks = this.#node.turns.atRisk;
    return risks.length > 0 || this.#node.journal.isChanged ? risks : undefined;
  }

  /** Closes the journal. */
  close(): void {
    this.#node.journal.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #alone<Value>(operation: string, name: string, action: (entry: SandboxEntry) => Promise<Value>): Promise<Value> {
    return this.#node.turns.alone(operation, name, async () =>
      action(await settled(this.#node, ready(await ownSandbox(this.#node, name)))),
    );
  }

  /** Refuses a taken name at once: two operations that wait for each other's names would wait for ever. */
  #newName(wanted: string | undefined, prefix: string): string {
    const name = wanted ?? randomName(prefix);
    checkName(name);
    if (this.#node.turns.isBusy(name)) throw taken(name);
    this.#node.journal.demandFree(name);
    return name;
  }

  async #info(entry: SandboxEntry): Promise<SandboxInfo> {
    return this.#infoOf(entry, await asSandboxError(this.#node.instances.find(entry)));
  }

  #infoOf(entry: SandboxEntry, instance: Instance | undefined): SandboxInfo {
    const { ip, state, stateError } = instance ?? {};
    const address = ip === undefined ? undefined : addressOf(entry, ip);
    return { ...entry, state, stateError, address, credentials: this.#node.credentials.folderOf(entry.name) };
  }
}

async function asSandboxError<Value>(answer: Promise<Value>): Promise<Value> {
  try {
    return await answer;
  } catch (error) {
    throw sandboxError(error);
  }
}
