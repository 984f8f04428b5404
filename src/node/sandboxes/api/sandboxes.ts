import { connect, type GuestClient } from "../../client/index.ts";
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
  abortable,
  checkLimit,
  checkName,
  checkNodeId,
  checkSpec,
  type Instance,
  type OperationOptions,
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
  callLimits,
  checkNumbers,
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
} from "../state/index.ts";
import { ownEntry, ownSandbox } from "./own.ts";
import { reach, type Reach } from "./reach.ts";
import { rotateAll, type RotateAllOptions, type RotationReport } from "./rotation.ts";
import type { ForkResult, SandboxInfo, SnapshotResult } from "./results.ts";
import { sweep, type SweepOptions, type SweepPlan, sweepPlan } from "./sweep.ts";
import type { SweepReport } from "./sweep-report.ts";
import { UsageReader } from "./usage.ts";
import { nodeStatus, type NodeStatus } from "./status.ts";
import { watch, type WatchOptions } from "./watch.ts";

/**
 * Limit on concurrent requests for single instances. Instances that are missing from a listing are requested one by
 * one.
 */
const REQUESTS_AT_A_TIME = 16;

/**
 * The sandboxes of one node. A sandbox is an instance of the substrate with the agent inside, from its creation to its
 * removal. Operations on the same sandbox wait for each other, even across processes. Every method rejects with
 * SandboxError.
 */
export class Sandboxes {
  readonly #node: NodeParts;

  private constructor(node: NodeParts) {
    this.#node = node;
  }

  /**
   * Rejects with MISSING_PACKAGE if this version of Node cannot open a journal. Programs call this before anything
   * else.
   */
  static async checkRuntime(): Promise<void> {
    await loadSqlite();
  }

  /** Opens the node's journal until `close` is called. Other processes may have it open, too. Sends no request. */
  static async open(options: NodeOptions): Promise<Sandboxes> {
    checkNodeId(options.nodeId);
    checkNumbers(options);
    return new Sandboxes(nodeOf(options, await Journal.open(options.stateDirectory, options.readOnly === true)));
  }

  /** Names of the sandboxes in a journal. Sends no request. */
  static async names(stateDirectory: string): Promise<readonly string[]> {
    const journal = await Journal.open(stateDirectory, true);
    try {
      return journal.all().flatMap(({ kind, name }) => (kind === "sandbox" ? [name] : []));
    } finally {
      journal.close();
    }
  }

  /** Requests the daemon's health and features and the resources of its host. */
  status(options: OperationOptions = {}): Promise<NodeStatus> {
    return abortable(options, () => asSandboxError(nodeStatus(this.#node)));
  }

  /** Lists all images of the substrate, which all nodes share. An image that is not ready has a `nextStep`. */
  images(options: OperationOptions = {}): Promise<readonly ImageInfo[]> {
    return abortable(options, async () =>
      imageInfos(await asSandboxError(this.#node.substrate.images()), this.#node.daemonDirectory),
    );
  }

  /** Creates a sandbox and waits until its agent answers. If a step fails, everything created so far is removed. */
  async create(spec: SandboxSpec, options: OperationOptions = {}): Promise<SandboxInfo> {
    checkSpec(spec);
    const made = await abortable(options, () => create(this.#node, spec));
    return this.#info(made);
  }

  /** Returns a sandbox. If it is off, `endedBecause` is the reason that is found on its console. */
  get(name: string, options: OperationOptions = {}): Promise<SandboxInfo> {
    return abortable(options, () => this.#get(name));
  }

  async #get(name: string): Promise<SandboxInfo> {
    const entry = await ownSandbox(this.#node, name);
    const credentialsExpireMs = await this.#node.credentials.expiryMs(name).catch(() => undefined);
    const info = { ...(await this.#info(entry)), credentialsExpireMs };
    const { instanceId, state } = info;
    if (instanceId === undefined || state === undefined || !isOff({ state })) return info;
    return { ...info, endedBecause: await reasonOfEnd(this.#node.substrate, instanceId) };
  }

  /** All sandboxes of this node, in the order of their creation. */
  list(options: OperationOptions = {}): Promise<readonly SandboxInfo[]> {
    return abortable(options, () => this.#list());
  }

  async #list(): Promise<readonly SandboxInfo[]> {
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

  /**
   * Connects to a sandbox's agent. The caller must close the client. Rejects with WRONG_STATE while the restore steps
   * of the sandbox are not done.
   */
  async connect(name: string, options: OperationOptions = {}): Promise<GuestClient> {
    const { address } = await this.reach(name, options);
    return connect({ address, ...(await asSandboxError(this.#node.credentials.client(name))) });
  }

  /** Returns a reader of all running sandboxes' usage, for example for Prometheus. The caller must dispose of it. */
  usageReader(): UsageReader {
    return new UsageReader(this);
  }

  /**
   * Returns the address and credentials of a sandbox's agent, for other programs. If the agent cannot answer, the error
   * says what to do.
   */
  reach(name: string, options: OperationOptions = {}): Promise<Reach> {
    return abortable(options, () => asSandboxError(reach(this.#node, name)));
  }

  /**
   * Suspends a sandbox to disk. Before that, runs PRE_SNAPSHOT, whose failure does not end the operation, and freezes
   * the session until its restore steps.
   */
  standby(name: string, options: SuspendOptions = {}): Promise<Suspension> {
    return this.#alone("standby", name, options, (entry) => standby(this.#node, entry, options));
  }

  /**
   * Resumes a sandbox: checks that its image, hypervisor, agent version and CPU class have not changed since the
   * suspension, restores it, runs the restore steps and the POST_RESTORE hook, and calls Health. Resolves with
   * undefined if the sandbox was stopped and has been booted again. After an abort, call `resume` again, because the
   * sandbox may already be running without having run its restore steps.
   */
  resume(name: string, options: ResumeOptions = {}): Promise<Awakening | undefined> {
    return this.#alone("resume", name, options, (entry) => resume(this.#node, entry, options));
  }

  /**
   * Gives a running sandbox a new certificate authority, certificates and token, and removes the old ones. Connections
   * that use the old ones end within seconds. If the call fails, repeat it: it continues where it stopped.
   */
  async rotate(name: string, options: OperationOptions = {}): Promise<SandboxInfo> {
    return this.#info(await this.#alone("rotate", name, options, (entry) => rotate(this.#node, entry)));
  }

  /** Rotates the credentials of all running sandboxes, or of those older than `olderThanMs`, eight at a time. */
  rotateAll(options: RotateAllOptions = {}): Promise<RotationReport> {
    return asSandboxError(rotateAll(this.#node, options));
  }

  /**
   * Stops a sandbox; `resume` boots it again. The result has a warning if the workload did not get its whole grace
   * period. Once the agent has been asked to stop, an abort ends only the wait for the stop.
   */
  stop(name: string, options: OperationOptions = {}): Promise<Stopping> {
    return this.#alone("stop", name, options, (entry) => stop(this.#node, entry));
  }

  /**
   * Runs PRE_SNAPSHOT, freezes the session and takes a snapshot. The sandbox is suspended for the snapshot, and then
   * resumed with its restore steps. Resolves with the snapshot, and with how the sandbox was resumed. If the sandbox
   * cannot be resumed, rejects and keeps the snapshot, which may be all that is left of the sandbox. Once the snapshot
   * is taken, an abort has no effect.
   *
   * @param options.live asks for a snapshot without a suspension. This substrate cannot take such a snapshot, so the
   *   call rejects with CAPABILITY_MISSING
   */
  async snapshot(
    name: string,
    options: SuspendOptions & { readonly name?: string | undefined; readonly live?: boolean | undefined } = {},
  ): Promise<SnapshotResult> {
    if (options.live === true) {
      const message =
        "the substrate cannot take a snapshot without suspending the sandbox (liveCheckpoint is false); omit live";
      throw new SandboxError("CAPABILITY_MISSING", message);
    }
    const own = this.#newName(options.name, "snapshot");
    return this.#alone("snapshot", name, options, (entry) =>
      this.#node.operations.exclusive("snapshot", own, () => snapshot(this.#node, entry, own, options)),
    );
  }

  /**
   * Creates a running sandbox from another sandbox or a snapshot. The new sandbox has its own credentials and random
   * numbers, and the current time. A running source is suspended for the fork, and then resumed with its restore steps.
   * Resolves with the new sandbox, and with how the new sandbox and the source were resumed.
   */
  async fork(from: string, options: ForkOptions = {}): Promise<ForkResult> {
    const own = this.#newName(options.name, "sandbox");
    const { operations } = this.#node;
    const { fork: made, ...rest } = await abortable(options, () =>
      operations.exclusive("fork", from, async () => {
        const found = ready(await ownEntry(this.#node, from));
        const parent = found.kind === "sandbox" ? await settled(this.#node, found) : found;
        return operations.exclusive("fork", own, () => fork(this.#node, parent, own, options));
      }),
    );
    return { sandbox: await this.#info(made), ...rest };
  }

  /**
   * Routes a hostname of the daemon's ingress to a port of a sandbox, until `unpublish` is called or the sandbox is
   * removed. Rejects with HOSTNAME_IN_USE if the hostname is taken. If only the wait for the server fails, rejects with
   * INGRESS_NOT_SERVED or GUEST_NOT_LISTENING, and the publication remains; the same call can then be repeated. The
   * result has a `warning` if the server listens only on addresses that the ingress cannot reach.
   *
   * @param port port in the sandbox; its server should listen on all addresses
   */
  async publish(
    name: string,
    port: number,
    hostname: string,
    options: PublishOptions = {},
  ): Promise<Publication & { readonly warning?: string | undefined }> {
    checkLimit(options.timeoutMs, "timeoutMs");
    return abortable(options, async () => {
      const made = await this.#alone("publish", name, {}, (entry) =>
        publish(this.#node, entry, port, hostname, options),
      );
      const hint = (): Promise<string | undefined> => this.#loopbackOnly(name, port).catch(() => undefined);
      if (options.timeoutMs !== undefined) await served(this.#node, name, made, options.timeoutMs, hint);
      const warning = options.timeoutMs === undefined ? await hint() : undefined;
      return warning === undefined ? made : { ...made, warning };
    });
  }

  /** Returns a hint if all servers on the port listen only on loopback addresses, which the ingress cannot reach. */
  async #loopbackOnly(name: string, port: number): Promise<string | undefined> {
    using client = await this.connect(name);
    const { ports } = await client.ports.list(callLimits(CALL_MS));
    const own = ports.filter((one) => one.port === port);
    const [first] = own;
    if (first === undefined || own.some(({ scope }) => scope !== "loopback")) return undefined;
    return `its server listens at ${first.address} only, which the ingress cannot reach; make it listen at 0.0.0.0`;
  }

  /** Ends a publication. @param listenPort port of the host on which the ingress listens. Default: 80 */
  unpublish(name: string, hostname: string, listenPort?: number, options: OperationOptions = {}): Promise<void> {
    return this.#alone("unpublish", name, options, (entry) => unpublish(this.#node, entry, hostname, listenPort));
  }

  /**
   * Removes a sandbox or a snapshot in any state. Also removes its credentials and the volume that contains them, but
   * keeps the volume as long as a fork uses it. If the removal is aborted, the next call or the next sweep removes the
   * rest.
   */
  remove(name: string, options: OperationOptions = {}): Promise<void> {
    return abortable(options, () =>
      this.#node.operations.exclusive("remove", name, async () =>
        discard(this.#node, "remove", await ownEntry(this.#node, name)),
      ),
    );
  }

  /** Finishes or removes everything that earlier processes left unfinished. An abort leaves the rest to the next sweep. */
  sweep(options: SweepOptions = {}): Promise<SweepReport> {
    return abortable(options, () => asSandboxError(sweep(this.#node, options)));
  }

  /** Lists what a sweep would finish or remove now. Changes nothing. */
  sweepPlan({ takeOver = false, ...options }: Omit<SweepOptions, "onProgress"> = {}): Promise<SweepPlan> {
    return abortable(options, () => asSandboxError(sweepPlan(this.#node, takeOver)));
  }

  /** Enforces TTLs and idle actions until the signal is aborted. */
  watch(options: WatchOptions): Promise<void> {
    return watch(this.#node, options);
  }

  /**
   * Sentences that describe what would remain unfinished or frozen until the next sweep if this process ended now.
   * Undefined if this process has changed nothing so far.
   */
  get atRisk(): readonly string[] | undefined {
    const risks = this.#node.operations.atRisk;
    return risks.length > 0 || this.#node.journal.isChanged ? risks : undefined;
  }

  /** Closes the journal. No other method may be called afterwards. */
  close(): void {
    this.#node.journal.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #alone<Value>(
    operation: string,
    name: string,
    options: OperationOptions,
    action: (entry: SandboxEntry) => Promise<Value>,
  ): Promise<Value> {
    return abortable(options, () =>
      this.#node.operations.exclusive(operation, name, async () =>
        action(await settled(this.#node, ready(await ownSandbox(this.#node, name)))),
      ),
    );
  }

  /**
   * Throws if another operation is using the name. Waiting for that operation could deadlock, because it may itself be
   * waiting for a name that this operation uses.
   */
  #newName(wanted: string | undefined, prefix: string): string {
    const name = wanted ?? randomName(prefix);
    checkName(name);
    if (this.#node.operations.isBusy(name)) throw taken(name);
    this.#node.journal.requireFree(name);
    return name;
  }

  async #info(entry: SandboxEntry): Promise<SandboxInfo> {
    return this.#infoOf(entry, await asSandboxError(this.#node.instances.find(entry)));
  }

  #infoOf(entry: SandboxEntry, instance: Instance | undefined): SandboxInfo {
    const { ip, state, stateError } = instance ?? {};
    const address = ip === undefined ? undefined : addressOf(entry, ip);
    return { ...entry, state, stateError, address, credentials: this.#node.credentials.directoryOf(entry.name) };
  }
}

async function asSandboxError<Value>(answer: Promise<Value>): Promise<Value> {
  try {
    return await answer;
  } catch (error) {
    throw sandboxError(error);
  }
}
