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
} from "../../domain/index.ts";
import type { Addon, SpawnSettings } from "../../native/index.ts";
import type { ChildPriority } from "../self-protection.ts";
import { KeptPipes } from "../streams/kept-pipes.ts";
import { WidePipes } from "../streams/wide-pipes.ts";
import { type Cgroup, ContainedTree } from "./cgroup.ts";
import type { Cgroups } from "./cgroups.ts";
import { ChildEnds, childProcess, streamsOf } from "./child.ts";
import { ProcessReadings } from "./process-readings.ts";
import { start, type Started, StartsInFlight } from "./spawn.ts";
import { walkedSession, walkedTree } from "./walked-processes.ts";

/** What all children share. */
export interface Surroundings extends Pick<SpawnSettings, "openFilesLimit"> {
  /** OOM score and priority. */
  readonly childPriority?: ChildPriority;
  /** Undefined: commands get no cgroups. */
  readonly cgroups?: Cgroups | undefined;
  /** The clock for grace periods of processes. */
  readonly sessionClock?: SessionClock;
  /** The process that adopts orphans, if it adopts only those of the agent's children: the launcher. */
  readonly adopter?: number | undefined;
  /** Called when a pipe was closed although a process still writes to it, because too many are kept. */
  readonly onPipeGivenUp?: () => void;
  /** Called when a child has ended, before it is reaped. */
  readonly onEnded?: (pid: number, end: ProcessEnd) => void;
}

/** Starts that hang in the kernel although they were aborted: each holds a thread, a process and its streams. */
const STUCK_LIMIT = EXEC_LIMIT;

/** Starts processes through the addon. */
export class NativeProcesses implements Processes {
  readonly #addon: Addon;
  readonly #pool: BufferPool;
  readonly #surroundings: Surroundings;
  readonly #ends: ChildEnds;
  readonly #starts: StartsInFlight = new StartsInFlight();
  readonly #keptPipes: KeptPipes;
  readonly #widePipes: WidePipes;
  readonly #readings: ProcessReadings;
  /** Aborted starts that hang. */
  #stuck = 0;

  constructor(addon: Addon, pool: BufferPool, surroundings: Surroundings) {
    this.#addon = addon;
    this.#pool = pool;
    this.#surroundings = surroundings;
    this.#ends = new ChildEnds(addon, surroundings.onEnded);
    this.#readings = new ProcessReadings(addon);
    this.#keptPipes = new KeptPipes(addon, surroundings.onPipeGivenUp);
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
    return promise;
  }

  async #spawn(
    block: SpawnBlock,
    abort: AbortSignal | undefined,
    onStuck: (error: SpawnAborted) => void,
  ): Promise<ChildProcess> {
    const { started, cgroup } = await this.#starts.track(this.#start(block, abort, onStuck));
    const { kind } = block.stdio;
    const { pid } = started;
    const { adopter, sessionClock } = this.#surroundings;
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
      streams: streams ?? {},
    });
    if (streams === undefined) await undo(child, new SpawnError("prepare", "ENOMEM"));
    if (abort?.aborted === true) await undo(child, new SpawnAborted());
    return child;
  }

  /** Starts the child in a cgroup of its own. If the kernel gives none, it is in the agent's and cannot be frozen. */
  async #start(
    block: SpawnBlock,
    abort: AbortSignal | undefined,
    onStuck: (error: SpawnAborted) => void,
  ): Promise<{ readonly started: Started; readonly cgroup: Cgroup | undefined }> {
    const { cgroups, openFilesLimit, childPriority } = this.#surroundings;
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

/** Kills a child that runs although its start has failed. */
async function undo(child: ChildProcess, failure: SpawnError): Promise<never> {
  await child.tree.killWithin(KILL_WAIT_MS);
  child.release();
  throw failure;
}
