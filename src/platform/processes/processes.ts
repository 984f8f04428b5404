import type { ChildProcess, Processes, SpawnRequest } from "../../domain/index.ts";
import type { Addon, NativeSpawnOptions } from "../../native/index.ts";
import type { BufferPool } from "../streams/index.ts";
import { block } from "./block.ts";
import { Child } from "./child.ts";
import { ChildEnds } from "./child-ends.ts";
import { giveStreamsTo, isOwnIdentity } from "./identity.ts";
import { closeStreams, openStdio, type Stdio } from "./stdio.ts";
import { start, startAborted } from "./start.ts";
import { WalkedTree } from "./walked-tree.ts";

function optionsFor(request: SpawnRequest, stdio: Stdio, openFilesLimit: number): NativeSpawnOptions {
  const wanted = request.identity;
  const identity = wanted !== undefined && isOwnIdentity(wanted) ? undefined : wanted;
  return {
    candidates: block(request.candidates),
    args: block(request.args),
    env: block(request.env),
    cwd: block([request.cwd]),
    stdio: stdio.fds,
    session: stdio.session,
    cgroupFd: -1,
    openFilesLimit,
    uid: identity?.uid ?? -1,
    gid: identity?.gid ?? -1,
    groups: Uint32Array.from(identity?.groups ?? []),
  };
}

/** Asked twice, before and after the start, which the compiler would take for one. */
function isAborted(abort: AbortSignal | undefined): boolean {
  return abort?.aborted === true;
}

/** Starts processes through the addon. */
export class NativeProcesses implements Processes {
  readonly #addon: Addon;
  readonly #pool: BufferPool;
  readonly #openFilesLimit: number;
  readonly #ends: ChildEnds;

  /** `openFilesLimit`: soft RLIMIT_NOFILE of the children. */
  constructor(addon: Addon, pool: BufferPool, openFilesLimit: number) {
    this.#addon = addon;
    this.#pool = pool;
    this.#openFilesLimit = openFilesLimit;
    this.#ends = new ChildEnds(addon);
  }

  async spawn(request: SpawnRequest, abort?: AbortSignal): Promise<ChildProcess> {
    if (isAborted(abort)) throw startAborted();
    const stdio = openStdio(this.#addon, this.#pool, request.stdio);
    try {
      const options = optionsFor(request, stdio, this.#openFilesLimit);
      if (request.identity !== undefined) giveStreamsTo(request.identity.uid, stdio.fds);
      const pid = await start(this.#addon, options, abort);
      stdio.closeChildEnds();
      const child = this.#childOf(pid, request, stdio);
      if (isAborted(abort)) await this.#undo(child);
      return child;
    } catch (error) {
      stdio.closeChildEnds();
      closeStreams(stdio);
      throw error;
    }
  }

  #childOf(pid: number, request: SpawnRequest, stdio: Stdio): Child {
    const tree = new WalkedTree(this.#addon, pid);
    return new Child(this.#addon, pid, this.#ends.of(pid), tree, stdio, request.stdio.kind === "terminal");
  }

  /** The abort came when the child had just started. */
  async #undo(child: Child): Promise<never> {
    await child.killTree();
    await child.ended;
    child.release();
    throw startAborted();
  }
}
