/** User and groups that a child runs as. */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
  /** Supplementary groups, replacing the agent's. */
  readonly groups: readonly number[];
}

/** Where a child's standard streams lead. */
export type StdioPlan =
  /**
   * The agent's own streams, with `pipesOutputs` a pipe for each output: for the workload. The child gets a process
   * group of its own, in the agent's session.
   */
  | { readonly kind: "inherit"; readonly pipesOutputs: boolean }
  /** A pipe each; standard input only where `stdin` (else /dev/null). The child leads a session of its own. */
  | { readonly kind: "pipes"; readonly stdin: boolean }
  /** A new terminal, controlling terminal of the child's own session. */
  | {
      readonly kind: "terminal";
      readonly cols: number;
      readonly rows: number;
      /** TERM for a command whose environment does not set it. */
      readonly term?: string;
      /** Its line editing takes input as UTF-8. */
      readonly iutf8?: boolean;
    };

/**
 * A command as the kernel takes it: everything looked up, the strings packed. The addon reads this object
 * (addon/spawn.c). Each packed string ends with its only NUL.
 */
export interface SpawnBlock {
  /** Files to try in order, as execvp(3) does with the entries of PATH. At least one. */
  readonly files: Uint8Array;
  readonly args: Uint8Array;
  /** Whole entries, `NAME=value`. */
  readonly env: Uint8Array;
  /** A single string. */
  readonly cwd: Uint8Array;
  /** Undefined: the agent's own identity. */
  readonly identity: Identity | undefined;
  readonly stdio: StdioPlan;
}

/** Packs strings for a SpawnBlock. Throws SpawnError for a NUL, which would make two of one. */
export function pack(strings: readonly (Uint8Array | string)[]): Uint8Array {
  const parts: Uint8Array[] = [];
  // Encodes many at once: one by one, 100,000 take four times as long.
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

/** The step of starting a child that failed. */
export type SpawnStep =
  /** Pipes, descriptors or memory of the agent. */
  | "prepare"
  /** No terminal could be opened (no /dev/ptmx or /dev/pts, or no more of them). */
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
  /** The child was killed before it became the command. */
  | "killed";

/** A child could not be started: which step failed, with which errno. */
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

/** A start that was aborted: whether it left nothing, or hangs in the kernel and ends as soon as that lets it. */
export class SpawnAborted extends SpawnError {
  /** What it waited for; undefined: for nothing that may hang. */
  readonly waited: { readonly step: "chdir" | "execve"; readonly mount: string | undefined } | undefined;

  constructor(waited?: SpawnAborted["waited"]) {
    super("killed", "ECANCELED");
    this.waited = waited;
  }
}

/** How a process ended (waitid(2)). */
export interface ProcessEnd {
  /** As a shell reports it: 128 + `signal` when a signal ended it. */
  readonly code: number;
  /** 0 when it exited by itself. */
  readonly signal: number;
  readonly coreDumped: boolean;
}

/** Whose usage it is: all of the command's cgroup, or its process and the descendants that were waited for. */
type UsageScope = "tree" | "process";

/** What a command has used so far. */
export interface CommandUsage {
  readonly cpuScope: UsageScope;
  readonly cpuUserUs: number;
  readonly cpuSystemUs: number;
  /** Undefined: not known. */
  readonly peakMemory: { readonly scope: UsageScope; readonly bytes: number } | undefined;
}

/** The kernel's accounts of a command. */
export interface CommandAccounts {
  /** Whether the out-of-memory killer struck in its own cgroup. Undefined: nobody counts that. */
  readonly oomKilled: boolean | undefined;
  /** Undefined: not known. */
  readonly usage: CommandUsage | undefined;
}

/**
 * Processes that are ended together: a tree, or a session. Each call looks for them again, so that new ones count.
 * After the child's release it reaches none. No call throws.
 */
export interface ProcessSet {
  /**
   * Sends a signal to every member, once, and continues those that are stopped, which would act on it only then.
   * Resolves once that is done.
   */
  signal(signal: number): Promise<void>;
  /** Resolves with true as soon as no member is alive, with false after `limitMs`. */
  emptyWithin(limitMs: number): Promise<boolean>;
  /** Sends SIGKILL to every member, also to new ones. Resolves as `emptyWithin` does. */
  killWithin(limitMs: number): Promise<boolean>;
}

/** A child that runs or has ended. */
export interface ChildProcess {
  readonly pid: number;
  /** Present with pipes where stdin was asked for, and with a terminal. */
  readonly stdin: ByteSink | undefined;
  /** Present with pipes, for the outputs alone too, and with a terminal. */
  readonly stdout: ByteSource | undefined;
  /** Present with pipes, for the outputs alone too. */
  readonly stderr: ByteSource | undefined;
  /** Resolves when the process has ended. The process id stays reserved (a zombie) until `release`. Never rejects. */
  readonly ended: Promise<ProcessEnd>;
  /** The child and all its descendants, those in other sessions included. */
  readonly tree: ProcessSet;
  /** All processes of the session that the child leads; none with `inherit`, where it leads no session. */
  readonly session: ProcessSet;
  /** Sets the terminal's size; nothing without a terminal or after its end. */
  resize(cols: number, rows: number): void;
  /** Sends a signal to the process alone. Nothing after `release`. */
  signal(signal: number): void;
  /**
   * Sends a signal to the child's process group; in a terminal SIGINT, SIGQUIT and SIGTSTP to the group that is in its
   * foreground. Nothing after `release`.
   */
  signalGroup(signal: number): void;
  /** What the kernel has counted. Ask once it has ended, and before `release`. */
  accounts(): CommandAccounts;
  /** Living processes with the writing end of one of the child's pipes. Takes about 20 us a process of the guest. */
  outputHolders(): readonly number[];
  /**
   * Reaps the ended process and closes its streams. From then on the agent reads and drops what background processes
   * write to its pipes, so that they do not die of SIGPIPE. Call it once: after `ended`, or when the process hangs in
   * the kernel and survives SIGKILL. Such a process is reaped once it has ended.
   */
  release(): void;
}

/** Starts processes. */
export interface Processes {
  /**
   * Starts a child. Rejects with SpawnError when it could not be started; then nothing of it is left. Never blocks the
   * event loop, not even where the working directory or the command lies on a file system that hangs. Aborting kills
   * the child while it starts and rejects (SpawnAborted), even where the kernel does not end it yet; once resolved, the
   * signal has no effect.
   */
  spawn(block: SpawnBlock, abort?: AbortSignal): Promise<ChildProcess>;
}

/** A process that should have stopped but waits in the kernel. It runs no instruction of its own. */
export interface PendingProcess {
  readonly pid: number;
  readonly name: string;
  /** The kernel's function that it waits in; empty: unknown. */
  readonly waitChannel: string;
}

/** Why the session was not frozen (docs/agent/operations.md): stable text that clients compare, so never rename one. */
export type FreezeProblem =
  /** There is no cgroup of the session. */
  | "no_cgroups"
  /** A command that was being started did not get so far in time. */
  | "starts_in_flight"
  /** The kernel refused. */
  | `freeze_write:${string}`
  /** A privileged process moved the agent, its launcher, or somebody else's process into the session's cgroup. */
  | `foreign_inside:${string}`
  /** Processes of the session are in cgroups that hold others too. */
  | `processes_outside:${string}`
  /** Restore duties ran during the hook: the snapshot has been taken. */
  | "duties_ran"
  /** The agent leaves. */
  | "leaving"
  /** Before all had stopped, freeze_ms was over, a signal asked the session to end, or the agent began to leave. */
  | "thawed_meanwhile";

/** All processes of the session, as they are frozen together (cgroups(7), cgroup.freeze). No call throws. */
export interface SessionGroup {
  /** Freezes them. Once it returns, none runs an instruction of its own. Undefined: done; else nothing is frozen. */
  freeze(): FreezeProblem | undefined;
  /** Resolves with undefined as soon as all have stopped; else, after `limitMs`, with those that wait in the kernel. */
  stopped(limitMs: number): Promise<readonly PendingProcess[] | undefined>;
  /** Looks once more for processes that have run since `freeze`. Undefined: none has; else the freeze has failed. */
  recheck(): FreezeProblem | undefined;
  size(): number;
  /** Thaws what `freeze` stopped. False: the kernel refused. */
  thaw(): boolean;
  /** Sends SIGKILL to all that `freeze` stopped, so that none runs another instruction. False: the kernel refused. */
  kill(): boolean;
}

/** Receives what a ByteSource reads. */
export interface ByteReceiver {
  /**
   * The next bytes, in order, valid until `release`. Call that exactly once a chunk: a source whose chunks are not
   * released stops reading, and then its writer blocks. There is no other backpressure.
   */
  chunk(bytes: Uint8Array, release: () => void): void;
  /** No bytes will follow. Called once; not after `close`. */
  end(): void;
}

/** Keeps what a ByteSource reads. The source reads straight into the store's memory, so that nothing is copied. */
export interface ByteStore {
  /**
   * Number of bytes that may be read into `bytes` from `position` on. 0: wait for `resume`; the writer blocks
   * meanwhile.
   */
  room(): number;
  readonly bytes: Uint8Array;
  readonly position: number;
  /** `count` bytes were read into the space last returned. Called in the same tick of the event loop. */
  filled(count: number): void;
}

/** The reading end of a child's output: a pipe or a terminal's master side. */
export interface ByteSource {
  /** Starts reading; called once, unless `startInto` is. */
  start(receiver: ByteReceiver): void;
  /** Starts reading into a store; called once, unless `start` is. */
  startInto(store: ByteStore): void;
  /** Makes the source read again: a full store has room. */
  resume(): void;
  /**
   * Call it once the process of interest has exited. Resolves when all bytes that the process wrote have been
   * delivered. True: the stream reached its end with them. False: another process still holds it open. Waits for chunks
   * to be released, or for room in the store, never for a process.
   */
  drain(): Promise<boolean>;
  /** Stops reading and closes the descriptor. Later calls do nothing. */
  close(): void;
}

/** The writing end of a child's input. */
export interface ByteSink {
  /**
   * Writes bytes in order. Undefined: the caller may reuse them. Otherwise the caller must not change them until the
   * promise resolves. Then the kernel has taken all, or nobody can read the rest (the reader closed its end, or `close`
   * was called).
   */
  write(bytes: Uint8Array): Promise<void> | undefined;
  /** End of input after everything written so far: closes a pipe, types the end-of-file character into a terminal. */
  end(): void;
  /** Closes the descriptor at once and drops what has not been written. Later calls do nothing. */
  close(): void;
}
