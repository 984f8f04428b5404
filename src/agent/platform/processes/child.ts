import { closeSync } from "node:fs";
import type { BufferPool, ChildProcess, CommandAccounts, ProcessEnd, StdioPlan } from "../../domain/index.ts";
import type { Addon } from "../../native/index.ts";
import type { KeptPipes } from "../streams/kept-pipes.ts";
import { FdSink } from "../streams/sink.ts";
import { FdSource, type StartsSettled } from "../streams/source.ts";
import type { WidePipes } from "../streams/wide-pipes.ts";
import type { Cgroup, ContainedTree } from "./cgroup.ts";
import { outputHolders } from "./process-table.ts";
import type { Started } from "./spawn.ts";
import type { WalkedProcesses } from "./walked-processes.ts";

interface Streams {
  stdin?: FdSink;
  stdout?: FdSource;
  stderr?: FdSource;
}

/**
 * Creates the streams for the descriptors of a child. If memory does not suffice to watch a descriptor, closes all the
 * descriptors and returns undefined.
 */
export function streamsOf(
  addon: Addon,
  pool: BufferPool,
  started: Started,
  plan: StdioPlan["kind"],
  startsSettled: StartsSettled,
  pipes: WidePipes,
): Streams | undefined {
  const kind = plan === "terminal" ? "terminal" : "pipe";
  const streams: Streams = {};
  try {
    if (started.stdin >= 0) streams.stdin = new FdSink(addon, kind, started.stdin, pipes);
    if (started.stdout >= 0) streams.stdout = new FdSource(addon, pool, kind, started.stdout, startsSettled, pipes);
    if (started.stderr >= 0) streams.stderr = new FdSource(addon, pool, kind, started.stderr, startsSettled, pipes);
    return streams;
  } catch {
    for (const name of ["stdin", "stdout", "stderr"] as const) {
      if (streams[name] !== undefined) streams[name].close();
      else if (started[name] >= 0) closeSync(started[name]);
    }
    return undefined;
  }
}

export interface ChildParts extends Pick<ChildProcess, "pid" | "ended" | "leftovers"> {
  readonly cgroup: Cgroup | undefined;
  readonly tree: WalkedProcesses | ContainedTree;
  readonly session: WalkedProcesses;
  readonly streams: Streams;
}

/** A child process, running or ended. Its pid and process group id are not reused until `release`. */
export function childProcess(addon: Addon, keptPipes: KeptPipes, parts: ChildParts): ChildProcess {
  const { pid, ended, cgroup, tree, session, leftovers } = parts;
  const { stdin, stdout, stderr } = parts.streams;
  const sources = [stdout, stderr].filter((source) => source !== undefined);
  let released = false;
  return {
    pid,
    cgroup: cgroup?.name,
    ended,
    tree,
    session,
    leftovers,
    stdin,
    stdout,
    stderr,
    resize: (cols, rows) => stdout?.resize(cols, rows),
    signal: (signal) => {
      if (!released) addon.kill(pid, signal);
    },
    signalGroup: (signal) => {
      if (!released && stdout?.signalForeground(signal) !== true) addon.killGroup(pid, signal);
    },
    accounts: () => accountsOf(addon, pid, cgroup),
    outputHolders: () => {
      const pipes = sources.flatMap((source) => source.pipeInode() ?? []);
      return pipes.length === 0 ? [] : outputHolders(new Set(pipes));
    },
    release: () => {
      if (released) return;
      released = true;
      stdin?.close();
      for (const source of sources) {
        const fd = source.leave();
        if (fd !== undefined) keptPipes.keep(fd);
      }
      // A process that still runs has survived SIGKILL, because it hangs in the kernel. It is reaped when it ends, so
      // that it does not stay a zombie forever.
      if (addon.peekEnd(pid) === 0) void ended.then(() => addon.reap(pid));
      else addon.reap(pid);
      tree.release();
      session.release();
    },
  };
}

/**
 * The resource usage of a command. It is read from the command's cgroup, which covers the whole tree, or from the
 * process if there is no cgroup.
 */
function accountsOf(addon: Addon, pid: number, cgroup: Cgroup | undefined): CommandAccounts {
  const [userUs = -1, systemUs = -1, bytes = -1, oomKills = -1] = cgroup?.used() ?? [];
  const oomKilled = oomKills < 0 ? undefined : oomKills > 0;
  const ofTree = { cpuScope: "tree", cpuUserUs: userUs, cpuSystemUs: systemUs } as const;
  if (userUs >= 0 && bytes >= 0) return { oomKilled, usage: { ...ofTree, peakMemory: { scope: "tree", bytes } } };
  const used = addon.usedBy(pid);
  const [cpuUserUs = -1, cpuSystemUs = -1, ownBytes = 0, agentBytes = 0] = typeof used === "number" ? [] : used;
  const ofProcess = { cpuScope: "process", cpuUserUs, cpuSystemUs } as const;
  const peakMemory = ownBytes > agentBytes ? ({ scope: "process", bytes: ownBytes } as const) : undefined;
  if (userUs < 0 && cpuUserUs < 0) return { oomKilled, usage: undefined };
  return { oomKilled, usage: { ...(userUs >= 0 ? ofTree : ofProcess), peakMemory } };
}

/** Values of si_code in the result of waitid(2). */
const CLD_EXITED = 1;
const CLD_DUMPED = 3;
/** Longest delay of a timer in Node. */
const FOREVER_MS = 2 ** 31 - 1;

function endFrom(peeked: number): ProcessEnd {
  /* Other code in this process has reaped the child (ECHILD), so its exit status is unknown. */
  if (peeked < 0) return { code: 255, signal: 0, coreDumped: false };
  const status = peeked & 0xff;
  const how = peeked >> 8;
  if (how === CLD_EXITED) return { code: status, signal: 0, coreDumped: false };
  return { code: 128 + status, signal: status, coreDumped: how === CLD_DUMPED };
}

/** Detects the exit of children, but does not reap them. On SIGCHLD, checks only children that were passed to `of`. */
export class ChildEnds {
  readonly #addon: Addon;
  readonly #onEnded: (pid: number, end: ProcessEnd) => void;
  readonly #waiting: Map<number, (end: ProcessEnd) => void> = new Map();
  #keepAlive: NodeJS.Timeout | undefined;

  constructor(addon: Addon, onEnded: (pid: number, end: ProcessEnd) => void = () => {}) {
    this.#addon = addon;
    this.#onEnded = onEnded;
  }

  /** Resolves when the child has exited, and does not reap it. Keeps the event loop alive until then. */
  of(pid: number): Promise<ProcessEnd> {
    return new Promise((resolve) => {
      this.#waiting.set(pid, resolve);
      if (this.#waiting.size === 1) this.#listen();
      /* The child may have exited before it was added to `#waiting`. */
      this.#check(pid, resolve);
    });
  }

  readonly #checkAll = (): void => {
    for (const [pid, resolve] of this.#waiting) this.#check(pid, resolve);
  };

  #check(pid: number, resolve: (end: ProcessEnd) => void): void {
    const peeked = this.#addon.peekEnd(pid);
    if (peeked === 0) return;
    this.#waiting.delete(pid);
    if (this.#waiting.size === 0) this.#keepAlive?.unref();
    const end = endFrom(peeked);
    this.#onEnded(pid, end);
    resolve(end);
  }

  /**
   * The signal handler and the timer stay installed when no child is left, because installing both again for each
   * command took longer than one run of the handler (#checkAll).
   */
  #listen(): void {
    if (this.#keepAlive === undefined) {
      process.on("SIGCHLD", this.#checkAll);
      this.#keepAlive = setInterval(this.#checkAll, FOREVER_MS);
    }
    this.#keepAlive.ref();
  }
}
