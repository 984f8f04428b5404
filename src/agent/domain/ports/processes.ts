export interface Identity {
  readonly uid: number;
  readonly gid: number;
  /** Supplementary groups. They replace the agent's. */
  readonly groups: readonly number[];
}

/** How the standard streams of a child are connected. */
export type StdioPlan =
  /**
   * Used for the workload. The child inherits the agent's standard streams. If `pipesOutputs` is true, it inherits only
   * standard input, and each output is a pipe. The child leads a process group in the agent's session.
   */
  | { readonly kind: "inherit"; readonly pipesOutputs: boolean }
  /**
   * Each output gets a pipe. Standard input gets a pipe if `stdin` is true, and /dev/null otherwise. The child leads a
   * session.
   */
  | { readonly kind: "pipes"; readonly stdin: boolean }
  /** A new terminal, which is the controlling terminal of the child's session. */
  | {
      readonly kind: "terminal";
      readonly cols: number;
      readonly rows: number;
      /** Value of TERM for a command whose environment does not set it. */
      readonly term?: string;
      /** Whether the terminal's line editing treats input as UTF-8. */
      readonly iutf8?: boolean;
    };

/**
 * A command as the addon reads it (addon/spawn.c): the user, the paths and the variables are resolved. Each packed
 * string ends with its only NUL.
 */
export interface SpawnBlock {
  /** Files to try in order, as execvp(3) does with PATH. There is at least one. */
  readonly files: Uint8Array;
  readonly args: Uint8Array;
  /** Entries of the form `NAME=value`. */
  readonly env: Uint8Array;
  /** The working directory, as one packed string. */
  readonly cwd: Uint8Array;
  /** User and groups of the child. If undefined, the child has the agent's own identity. */
  readonly identity: Identity | undefined;
  readonly stdio: StdioPlan;
}

/** Packs strings for a SpawnBlock. Throws SpawnError if a string contains a NUL, which would split it in two. */
export function pack(strings: readonly (Uint8Array | string)[]): Uint8Array {
  const parts: Uint8Array[] = [];
  // Strings are encoded in bulk, because encoding 100,000 strings one by one takes four times as long.
  let texts: string[] = [];
  const flush = (): void => {
    if (texts.length > 0) parts.push(Buffer.from(`${texts.join("\0")}\0`));
    texts = [];
  };
  for (const string of strings) {
    if (typeof string === "string" ? string.includes("\0") : string.includes(0)) {
      throw new SpawnError("prepare", "EINVAL");
    }
    if (typeof string === "string") {
      texts.push(string);
    } else {
      flush();
      parts.push(string, NUL);
    }
  }
  flush();
  return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
}

const NUL: Uint8Array = Uint8Array.of(0);

/** The steps of starting a child. Errors name the step that failed. */
export type SpawnStep =
  /** Creates the pipes. Fails if the agent has too few descriptors or too little memory. */
  | "prepare"
  /** Opens a terminal. Fails if there is no /dev/ptmx or /dev/pts, or if too many terminals are open. */
  | "terminal"
  | "clone"
  | "setsid"
  | "setpgid"
  | "ctty"
  | "cgroup"
  | "rlimit"
  | "setgroups"
  | "setgid"
  | "setuid"
  | "chdir"
  | "stdio"
  | "execve"
  /** The child was killed before it executed the command. */
  | "killed";

/** The error if a child could not be started. It has the failed step and the errno. */
export class SpawnError extends Error {
  override readonly name = "SpawnError";
  readonly step: SpawnStep;
  /** Symbolic errno, such as "ENOENT". */
  readonly errno: string;

  constructor(step: SpawnStep, errno: string) {
    super(`${step}: ${errno}`);
    this.step = step;
    this.errno = errno;
  }
}

/**
 * The error if a start was aborted. The process is gone, or hangs in a system call and dies as soon as that call
 * returns.
 */
export class SpawnAborted extends SpawnError {
  /** Set if the child was killed in chdir(2) or execve(2), which can hang: this step, and the mount of its path. */
  readonly waited: { readonly step: "chdir" | "execve"; readonly mount: string | undefined } | undefined;

  constructor(waited?: SpawnAborted["waited"]) {
    super("killed", "ECANCELED");
    this.waited = waited;
  }
}

/** How a process ended (waitid(2)). */
export interface ProcessEnd {
  /** Exit code; 128 + `signal` if a signal ended the process, as in shells. */
  readonly code: number;
  /** The signal that ended the process; 0 if it exited normally. */
  readonly signal: number;
  readonly coreDumped: boolean;
}

/**
 * Which processes the figures cover: all in the command's cgroup, or only the command's process and its reaped
 * descendants.
 */
type UsageScope = "tree" | "process";

/** Resource usage of a command so far. */
export interface CommandUsage {
  readonly cpuScope: UsageScope;
  readonly cpuUserUs: number;
  readonly cpuSystemUs: number;
  /** Peak memory, and which processes the figure covers; undefined if it is unknown. */
  readonly peakMemory: { readonly scope: UsageScope; readonly bytes: number } | undefined;
}

/** Figures that the kernel keeps about a command. */
export interface CommandAccounts {
  /** Whether a process in the command's cgroup was OOM-killed; undefined if unknown. */
  readonly oomKilled: boolean | undefined;
  /** Undefined if it is unknown. */
  readonly usage: CommandUsage | undefined;
}

/**
 * The processes of a tree or of a session, which are ended together. Each call of a method searches for them again, so
 * it finds new ones too. After the release of the child the set is empty. No method throws.
 */
export interface ProcessSet {
  /**
   * Sends the signal to every member, and then SIGCONT, each once. SIGCONT is for stopped processes, which handle other
   * signals only after it. Resolves when both signals were sent.
   */
  signal(signal: number): Promise<void>;
  /** Resolves with true as soon as no member is alive, or with false after `limitMs`. */
  emptyWithin(limitMs: number): Promise<boolean>;
  /** Sends SIGKILL to every member, also to new ones. Resolves with true or false, as `emptyWithin` does. */
  killWithin(limitMs: number): Promise<boolean>;
}

/** The processes that an ended child has left running. */
export interface LeftoverProcesses extends ProcessSet {
  /** Number of different processes that all calls of `signal` and `killWithin` so far have found. */
  readonly found: number;
}

export interface ChildProcess {
  readonly pid: number;
  /** Name of the child's cgroup, which is below the session's. Never reused. Undefined if the child has no cgroup. */
  readonly cgroup: string | undefined;
  /** Standard input. Present if there is a terminal, or if there are pipes and stdin was requested. */
  readonly stdin: ByteSink | undefined;
  /** Standard output. Present if there is a terminal, or if the outputs are pipes. */
  readonly stdout: ByteSource | undefined;
  /** Standard error. Present if the outputs are pipes. */
  readonly stderr: ByteSource | undefined;
  /** Resolves when the process has ended. Its pid stays reserved (a zombie) until `release`. Never rejects. */
  readonly ended: Promise<ProcessEnd>;
  /** The child and all its descendants, including descendants in other sessions. */
  readonly tree: ProcessSet;
  /** All processes of the child's session. Empty with `inherit`, where the child does not lead a session. */
  readonly session: ProcessSet;
  /**
   * Returns the processes that the child has left running. Call it after the child has ended, before or after
   * `release`. Undefined if the child has no cgroup, because its descendants cannot then be identified.
   */
  leftovers(): LeftoverProcesses | undefined;
  /** Sets the size of the terminal. Does nothing if the command has no terminal, or if the terminal is closed. */
  resize(cols: number, rows: number): void;
  /** Sends a signal to the child alone, not to its descendants. Does nothing after `release`. */
  signal(signal: number): void;
  /**
   * Sends a signal to the child's process group. If the child has a terminal, SIGINT, SIGQUIT and SIGTSTP go to the
   * terminal's foreground group instead. Does nothing after `release`.
   */
  signalGroup(signal: number): void;
  /** Returns the kernel's figures about the command. Call it after the process has ended and before `release`. */
  accounts(): CommandAccounts;
  /** Returns the processes that hold the write end of a child's pipe. Takes about 20 us per process of the guest. */
  outputHolders(): readonly number[];
  /**
   * Reaps the process and closes its streams. Call it once, after `ended`. Exception: if the process hangs in the
   * kernel despite SIGKILL, do not wait for `ended`. The process is then reaped when it ends.
   *
   * The agent discards what background processes still write to the pipes, so that they do not die from SIGPIPE.
   */
  release(): void;
}

/** Starts child processes of the agent. */
export interface Processes {
  /**
   * Starts a child. Never blocks the event loop, even if a file system hangs.
   *
   * - If the start fails, rejects with SpawnError. No child is left then.
   * - If the signal is aborted during the start, kills the child and rejects with SpawnAborted. The child may still be
   *   alive then if it hangs in the kernel.
   */
  spawn(block: SpawnBlock, abort?: AbortSignal): Promise<ChildProcess>;
}

/** A process of the session at one moment (message SessionProcess). */
export interface SessionProcess {
  readonly pid: number;
  /** Clock ticks (1/100 s) since boot. Pid and start time together identify a process; a pid alone may be reused. */
  readonly startTicks: number;
  readonly parent: number;
  /** Session id, which is the pid of the session's leader (setsid(2)). */
  readonly session: number;
  /** Effective user id. */
  readonly uid: number;
  /** The state of the process as one letter (proc_pid_stat(5)). */
  readonly state: string;
  readonly cpuUs: number;
  readonly rssBytes: number;
  /** The comm name of the process, which the process can change (PR_SET_NAME). */
  readonly name: string;
  /**
   * Cgroup of the command that the process belongs to (`ChildProcess.cgroup`). Undefined if the process belongs to no
   * command.
   */
  readonly cgroup: string | undefined;
}

/** The processes of the session at one moment. */
export interface SessionReading {
  /** Sorted by pid. */
  readonly processes: readonly SessionProcess[];
  readonly truncated: boolean;
  /** Time since boot when the list was read, for comparison with `startTicks`. */
  readonly uptimeUs: number;
}

/** Reads the processes of the session, and signals single ones. The agent and its launcher are never among them. */
export interface SessionProcesses {
  /**
   * Reads at most `limit` processes. Returns undefined if there is no usable /proc. Never waits for a process that
   * hangs.
   */
  read(limit: number): Promise<SessionReading | undefined>;
  /**
   * Arguments of a process, each followed by a NUL; undefined if the kernel does not show them. Never rejects, but may
   * occupy a thread for ever. This is because the kernel takes the memory lock of the process, which somebody else may
   * hold while a file system hangs.
   */
  commandLine(pid: number, limitBytes: number): Promise<Uint8Array | undefined>;
  /** Sends a signal to a process of the session. Returns undefined on success. */
  signal(pid: number, startTicks: number, signal: number): "unknown" | "not_permitted" | "unsupported" | undefined;
}

/** A process that a freeze has not stopped yet, because it waits inside the kernel. It executes no user code. */
export interface PendingProcess {
  readonly pid: number;
  readonly name: string;
  /** Kernel function in which the process waits; empty if it is unknown. */
  readonly waitChannel: string;
}

/** Why the session was not frozen (docs/agent/operations.md). Clients compare these texts: never rename one. */
export type FreezeProblem =
  /** The session has no cgroup. */
  | "no_cgroups"
  /** A command was still starting when the time was up. */
  | "starts_in_flight"
  /** The write to cgroup.freeze failed with this errno. */
  | `freeze_write:${string}`
  /** A privileged process moved the agent, its launcher, or a foreign process into the session's cgroup. */
  | `foreign_inside:${string}`
  /**
   * These processes of the session cannot be frozen: they share a cgroup with processes outside the session, or they
   * fork faster than the agent finds them.
   */
  | `processes_outside:${string}`
  /** The restore steps ran during the hook, after the snapshot, so a freeze was too late. */
  | "duties_ran"
  /** The agent is shutting down, so it no longer starts a freeze. */
  | "leaving"
  /**
   * The session was thawed before all of its processes had stopped, because freeze_ms was over, a termination signal
   * arrived, or the agent shut down.
   */
  | "thawed_meanwhile";

/** All processes of the session, which are frozen together (cgroups(7), cgroup.freeze). No method throws. */
export interface SessionGroup {
  /**
   * Freezes the session and returns undefined. None of its processes executes user code from then on. On failure it
   * returns the problem, and nothing is frozen.
   */
  freeze(): FreezeProblem | undefined;
  /**
   * Resolves with undefined once all processes have stopped. After `limitMs`, resolves with the processes that still
   * wait in the kernel.
   */
  stopped(limitMs: number): Promise<readonly PendingProcess[] | undefined>;
  /**
   * Call it after `freeze`. Searches again for processes of the session that are not frozen. If there is one, the
   * freeze has failed, and this method returns the problem.
   */
  recheck(): FreezeProblem | undefined;
  size(): number;
  /** Returns false if the kernel refused. */
  thaw(): boolean;
  /** Kills the frozen processes without thawing them first. Returns false if the kernel refused. */
  kill(): boolean;
}

export interface ByteReceiver {
  /**
   * Called with the next bytes, which are valid until `release`. Call `release` exactly once per chunk. While a chunk
   * is unreleased, the source does not read, and its writer blocks.
   */
  chunk(bytes: Uint8Array, release: () => void): void;
  /** Called once at EOF, but not after `close`. */
  end(): void;
}

/** Memory into which a ByteSource reads directly, so that nothing is copied. */
export interface ByteStore {
  /**
   * Returns how many bytes the source may write into `bytes`, beginning at `position`. If it returns 0, the source
   * stops reading until `resume` is called, and the writer of the stream blocks.
   */
  room(): number;
  readonly bytes: Uint8Array;
  readonly position: number;
  /**
   * The source calls `filled` when it has written `count` bytes at `position`. Between its calls of `room` and
   * `filled`, the source does not return to the event loop.
   */
  filled(count: number): void;
}

/** The read end of a child's output: a pipe or the master of a terminal. */
export interface ByteSource {
  /** Starts reading. Call either this or `startInto`, once. */
  start(receiver: ByteReceiver): void;
  /** Starts reading into `store`, which is memory of the caller. Call either this or `start`, and only once. */
  startInto(store: ByteStore): void;
  /** Continues reading. Call it when the store was full and has room again. */
  resume(): void;
  /**
   * Call it after the child has exited. Resolves when all bytes that the child wrote have been delivered:
   *
   * - with true if EOF was reached,
   * - with false if another process still holds the stream open.
   *
   * It waits for the receiver to take the bytes, but never for another process to close the stream.
   */
  drain(): Promise<boolean>;
  /** Stops reading and closes the descriptor. Later calls do nothing. */
  close(): void;
}

/** The write end of a child's input. */
export interface ByteSink {
  /**
   * Writes bytes in order. If it returns undefined, the caller may reuse their memory at once. If it returns a promise,
   * the caller must first wait for it. The promise resolves when the kernel has taken all bytes, or when nobody can
   * read them any more because the reader closed its end or `close` was called.
   */
  write(bytes: Uint8Array): Promise<void> | undefined;
  /** Ends the input after everything written: closes a pipe, or types the end-of-file character into a terminal. */
  end(): void;
  /** Closes the descriptor immediately and drops what has not been written. Later calls do nothing. */
  close(): void;
}
