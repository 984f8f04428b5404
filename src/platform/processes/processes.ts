import {
  type BufferPool,
  type ChildProcess,
  KILL_WAIT_MS,
  type Processes,
  SpawnError,
  type SpawnRequest,
} from "../../domain/index.ts";
import type { Addon, NativeSpawnOptions } from "../../native/index.ts";
import type { Standing } from "../self-protection.ts";
import { KeptPipes } from "../streams/kept-pipes.ts";
import type { Cgroup } from "./cgroup.ts";
import type { Cgroups } from "./cgroups.ts";
import { Child, ChildEnds } from "./child.ts";
import { ContainedTree } from "./contained-tree.ts";
import { ProcessTable } from "./process-table.ts";
import { block, giveStreamsTo, isOwnIdentity, start, startAborted, StartsInFlight } from "./spawn.ts";
import { closeStreams, openStdio, type Stdio } from "./stdio.ts";
import { walkedSession, walkedTree } from "./walked-processes.ts";

/** Settings that all children share. */
export interface Surroundings {
  /** Soft RLIMIT_NOFILE. */
  readonly openFilesLimit: number;
  /** OOM score and priority from before the agent changed its own. */
  readonly standing?: Standing;
  /** Undefined: commands get no cgroups. */
  readonly cgroups?: Cgroups | undefined;
  /** The process that adopts orphans, if it adopts only those of the agent's children: the launcher. */
  readonly adopter?: number | undefined;
  /** Called when a pipe was closed although a process still writes to it, because too many are kept. */
  readonly onPipeGivenUp?: () => void;
}

/** A larger environment is packed for each child anew: it may be one command's alone, and megabytes. */
const KEPT_ENVIRONMENT_BYTES = 64 * 1024;

function optionsFor(
  request: SpawnRequest,
  stdio: Stdio,
  { openFilesLimit, standing }: Surroundings,
  env: Uint8Array,
): Omit<NativeSpawnOptions, "cgroupFd"> {
  const wanted = request.identity;
  const identity = wanted !== undefined && isOwnIdentity(wanted) ? undefined : wanted;
  return {
    candidates: block(request.candidates),
    args: block(request.args),
    env,
    cwd: block([request.cwd]),
    stdio: stdio.fds,
    session: stdio.session,
    openFilesLimit,
    oomScoreAdj: standing?.oomScoreAdj ?? "",
    priority: standing?.priority,
    uid: identity?.uid ?? -1,
    gid: identity?.gid ?? -1,
    groups: Uint32Array.from(identity?.groups ?? []),
  };
}

/** A function, because the compiler would assume that the second check, after the start, has the result of the first. */
function isAborted(abort: AbortSignal | undefined): boolean {
  return abort?.aborted === true;
}

/** Starts processes through the addon. */
export class NativeProcesses implements Processes {
  readonly #addon: Addon;
  readonly #pool: BufferPool;
  readonly #surroundings: Surroundings;
  readonly #ends: ChildEnds;
  readonly #starts: StartsInFlight = new StartsInFlight();
  readonly #keptPipes: KeptPipes;
  readonly #table: ProcessTable;
  #lastEnvironment: { readonly env: SpawnRequest["env"]; readonly packed: Uint8Array } | undefined;

  constructor(addon: Addon, pool: BufferPool, surroundings: Surroundings) {
    this.#addon = addon;
    this.#pool = pool;
    this.#surroundings = surroundings;
    this.#ends = new ChildEnds(addon);
    this.#table = new ProcessTable(addon);
    this.#keptPipes = new KeptPipes(addon, surroundings.onPipeGivenUp);
  }

  async spawn(request: SpawnRequest, abort?: AbortSignal): Promise<ChildProcess> {
    if (isAborted(abort)) throw startAborted();
    const stdio = openStdio(this.#addon, this.#pool, request.stdio, () => this.#starts.settled());
    try {
      const options = optionsFor(request, stdio, this.#surroundings, this.#packed(request.env));
      if (request.identity !== undefined) giveStreamsTo(request.identity.uid, stdio.fds);
      const { pid, cgroup } = await this.#starts.track(this.#start(options, request, abort));
      stdio.closeChildEnds();
      const child = this.#childOf(pid, cgroup, request, stdio);
      if (isAborted(abort)) await this.#undo(child);
      return child;
    } catch (error) {
      stdio.closeChildEnds();
      closeStreams(stdio);
      throw error;
    }
  }

  /** The same environment is packed once, where that is small enough to be kept. */
  #packed(env: SpawnRequest["env"]): Uint8Array {
    const last = this.#lastEnvironment;
    if (last?.env === env) return last.packed;
    const packed = block(env);
    if (packed.length <= KEPT_ENVIRONMENT_BYTES) this.#lastEnvironment = { env, packed };
    return packed;
  }

  /** Starts the child. The workload stays in the agent's own cgroup, as it may want to make cgroups itself. */
  async #start(
    options: Omit<NativeSpawnOptions, "cgroupFd">,
    { stdio }: SpawnRequest,
    abort: AbortSignal | undefined,
  ): Promise<{ readonly pid: number; readonly cgroup: Cgroup | undefined }> {
    const cgroup = stdio.kind === "inherit" ? undefined : this.#surroundings.cgroups?.create();
    if (cgroup !== undefined) {
      try {
        return { pid: await start(this.#addon, { ...options, cgroupFd: cgroup.folder }, abort), cgroup };
      } catch (error) {
        cgroup.release();
        if (!(error instanceof SpawnError) || error.step !== "cgroup") throw error;
      }
    }
    return { pid: await start(this.#addon, { ...options, cgroupFd: -1 }, abort), cgroup: undefined };
  }

  #childOf(pid: number, cgroup: Cgroup | undefined, request: SpawnRequest, stdio: Stdio): Child {
    const { adopter } = this.#surroundings;
    const table = this.#table;
    const tree =
      cgroup === undefined
        ? walkedTree(this.#addon, pid, { table, adopter: request.stdio.kind === "inherit" ? adopter : undefined })
        : new ContainedTree(this.#addon, cgroup, pid, table);
    const processes = { pid, ended: this.#ends.of(pid), tree, session: walkedSession(this.#addon, pid, table) };
    return new Child(this.#addon, processes, stdio, request.stdio.kind === "terminal", this.#keptPipes);
  }

  /** Kills a child whose start was aborted just after it had succeeded. */
  async #undo(child: Child): Promise<never> {
    await child.tree.killWithin(KILL_WAIT_MS);
    await child.ended;
    child.release();
    throw startAborted();
  }
}
