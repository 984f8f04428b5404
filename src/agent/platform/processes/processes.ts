import {
  type BufferPool,
  type ChildProcess,
  EXEC_LIMIT,
  KILL_WAIT_MS,
  type ProcessEnd,
  type Processes,
  type SessionClock,
  SpawnAborted,
  type SpawnBlock,
  SpawnError,
  within,
} from "../../domain/index.ts";
import type { Addon, SpawnSettings } from "../../native/index.ts";
import type { ChildPriority } from "../self-protection.ts";
import { KeptPipes } from "../streams/kept-pipes.ts";
import { WidePipes } from "../streams/wide-pipes.ts";
import { type Cgroup, ContainedTree } from "./cgroup.ts";
import type { Cgroups } from "./cgroups.ts";
import { ChildEnds, childProcess, streamsOf } from "./child.ts";
import { CgroupLeftovers } from "./leftovers.ts";
import { ProcessReadings } from "./process-readings.ts";
import { start, type Started, StartsInFlight } from "./spawn.ts";
import { walkedSession, walkedTree } from "./walked-processes.ts";

/** Settings that are the same for all children. The settings of a single child are in its SpawnBlock. */
export interface ChildSettings extends Pick<SpawnSettings, "openFilesLimit"> {
  readonly childPriority?: ChildPriority;
  /** Creates the cgroups of commands. If undefined, commands do not get cgroups. */
  readonly cgroups?: Cgroups | undefined;
  /** Clock for grace periods, which stops while the session is frozen. */
  readonly sessionClock?: SessionClock;
  /** Pid of the launcher, which adopts only orphans of the agent's children; undefined if there is no launcher. */
  readonly adopter?: number | undefined;
  /** Called when KeptPipes has too many pipes and closes one, although a process may still write to it. */
  readonly onPipeEvicted?: () => void;
  /** Called when a child has ended, before it is reaped. */
  readonly onEnded?: (pid: number, end: ProcessEnd) => void;
}

/** Limit for aborted starts that hang in the kernel. Each of them occupies a thread, a process and its streams. */
const STUCK_LIMIT = EXEC_LIMIT;

/** Starts processes through the addon. */
export class NativeProcesses implements Processes {
  readonly #addon: Addon;
  readonly #pool: BufferPool;
  readonly #settings: ChildSettings;
  readonly #ends: ChildEnds;
  readonly #starts: StartsInFlight = new StartsInFlight();
  readonly #keptPipes: KeptPipes;
  readonly #widePipes: WidePipes;
  readonly #readings: ProcessReadings;
  /** Starts that can be aborted and whose promise has not settled, and their signals. */
  readonly #unsettled: Map<Promise<ChildProcess>, AbortSignal> = new Map();
  /** Number of starts that were aborted, but have not ended because the kernel hangs in them. */
  #stuck = 0;

  constructor(addon: Addon, pool: BufferPool, settings: ChildSettings) {
    this.#addon = addon;
    this.#pool = pool;
    this.#settings = settings;
    this.#ends = new ChildEnds(addon, settings.onEnded);
    this.#readings = new ProcessReadings(addon);
    this.#keptPipes = new KeptPipes(addon, settings.onPipeEvicted);
    this.#widePipes = new WidePipes(addon);
  }

  async spawn(block: SpawnBlock, abort?: AbortSignal): Promise<ChildProcess> {
    if (this.#stuck >= STUCK_LIMIT) throw new SpawnError("clone", "EAGAIN");
    const { promise, resolve, reject } = Promise.withResolvers<ChildProcess>();
    let isStuck = false;
    const onStuck = (error: SpawnAborted): void => {
      isStuck = true;
      this.#stuck += 1;
      reject(error);
    };
    const over = (): void => void (isStuck && (this.#stuck -= 1));
    void this.#spawn(block, abort, onStuck).then(resolve, reject).finally(over);
    if (abort !== undefined) {
      this.#unsettled.set(promise, abort);
      const forget = (): void => void this.#unsettled.delete(promise);
      promise.then(forget, forget);
    }
    return promise;
  }

  /**
   * Resolves when every aborted start has settled, after KILL_WAIT_MS at the latest. The agent waits for this before it
   * exits, because a child that runs its command before the agent aborts the start is killed only afterwards.
   */
  async abortedStartsSettled(): Promise<void> {
    const aborted = [...this.#unsettled].flatMap(([promise, signal]) => (signal.aborted ? [promise] : []));
    await within(Promise.allSettled(aborted), KILL_WAIT_MS);
  }

  async #spawn(
    block: SpawnBlock,
    abort: AbortSignal | undefined,
    onStuck: (error: SpawnAborted) => void,
  ): Promise<ChildProcess> {
    const { started, cgroup } = await this.#starts.track(this.#start(block, abort, onStuck));
    const { kind } = block.stdio;
    const { pid } = started;
    const { adopter, sessionClock } = this.#settings;
    const shared = { readings: this.#readings, sessionClock };
    const sources = { ...shared, adopter: kind === "inherit" ? adopter : undefined };
    const startsSettled = (): Promise<void> | undefined => this.#starts.settled();
    const streams = streamsOf(this.#addon, this.#pool, started, kind, startsSettled, this.#widePipes);
    const child = childProcess(this.#addon, this.#keptPipes, {
      pid,
      ended: this.#ends.of(pid),
      cgroup,
      tree:
        cgroup === undefined
          ? walkedTree(this.#addon, pid, sources)
          : new ContainedTree(this.#addon, cgroup, pid, sources),
      session: walkedSession(this.#addon, pid, shared, cgroup),
      leftovers: () => this.#leftovers(cgroup?.name),
      streams: streams ?? {},
    });
    if (streams === undefined) await undo(child, new SpawnError("prepare", "ENOMEM"));
    if (abort?.aborted === true) await undo(child, new SpawnAborted());
    return child;
  }

  #leftovers(name: string | undefined): CgroupLeftovers | undefined {
    const { cgroups, sessionClock } = this.#settings;
    if (cgroups === undefined || name === undefined) return undefined;
    return new CgroupLeftovers(this.#addon, () => cgroups.reopen(name), sessionClock);
  }

  /**
   * Starts the child in its own cgroup. If the kernel refuses to create the cgroup, the child runs in the agent's
   * cgroup and cannot be frozen.
   */
  async #start(
    block: SpawnBlock,
    abort: AbortSignal | undefined,
    onStuck: (error: SpawnAborted) => void,
  ): Promise<{ readonly started: Started; readonly cgroup: Cgroup | undefined }> {
    const { cgroups, openFilesLimit, childPriority } = this.#settings;
    const oomScoreAdj =
      block.stdio.kind === "inherit" ? childPriority?.workloadOomScoreAdj : childPriority?.commandOomScoreAdj;
    const shared = { openFilesLimit, oomScoreAdj, priority: childPriority?.priority };
    const cgroup = cgroups?.create();
    const startIn = (cgroupFd: number | undefined): Promise<Started> =>
      start(this.#addon, block, { ...shared, cgroupFd }, abort, onStuck);
    if (cgroup !== undefined) {
      try {
        return { started: await startIn(cgroup.fd), cgroup };
      } catch (error) {
        cgroup.release();
        if (!(error instanceof SpawnError) || error.step !== "cgroup") throw error;
      }
    }
    return { started: await startIn(undefined), cgroup: undefined };
  }
}

/** Kills a child that is already running, and then throws `failure` as the error of its start. */
async function undo(child: ChildProcess, failure: SpawnError): Promise<never> {
  await child.tree.killWithin(KILL_WAIT_MS);
  child.release();
  throw failure;
}
