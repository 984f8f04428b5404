import type { ByteSink, ByteSource } from "./streams.ts";

/** Who a child runs as. */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
  /** Supplementary groups, replacing the agent's. */
  readonly groups: readonly number[];
}

/** Where a child's standard streams lead. */
export type StdioPlan =
  /** The agent's own streams: for the workload. The child gets a process group of its own, in the agent's session. */
  | { readonly kind: "inherit" }
  /** A pipe each; standard input only where `stdin` (else /dev/null). The child leads a session of its own. */
  | { readonly kind: "pipes"; readonly stdin: boolean }
  /** A new terminal, controlling terminal of the child's own session. */
  | { readonly kind: "terminal"; readonly cols: number; readonly rows: number };

/** What to start. Bytes hold no NUL and carry no terminator. */
export interface SpawnRequest {
  /** Files to try in order, as execvp(3) does with the entries of PATH. At least one. */
  readonly candidates: readonly Uint8Array[];
  readonly args: readonly (Uint8Array | string)[];
  /** Whole entries, `NAME=value`. */
  readonly env: readonly (Uint8Array | string)[];
  readonly cwd: Uint8Array;
  /** Undefined: the agent's own identity. */
  readonly identity: Identity | undefined;
  readonly stdio: StdioPlan;
}

/** The step of starting a child that failed. */
export type SpawnStep =
  /** Pipes, descriptors or memory of the agent. */
  | "prepare"
  /** A terminal could not be had (no /dev/ptmx or /dev/pts, or no more of them). */
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

/** How a process ended (waitid(2)). */
export type ProcessEnd =
  | { readonly kind: "exited"; readonly code: number }
  | { readonly kind: "signaled"; readonly signal: number; readonly coreDumped: boolean };

/** A child that runs or has ended. */
export interface ChildProcess {
  readonly pid: number;
  /** Present with pipes where stdin was asked for, and with a terminal. */
  readonly stdin: ByteSink | undefined;
  /** Present with pipes and with a terminal. */
  readonly stdout: ByteSource | undefined;
  /** Present with pipes. */
  readonly stderr: ByteSource | undefined;
  /** Resolves when the process has ended. The process id stays reserved (a zombie) until `release`. Never rejects. */
  readonly ended: Promise<ProcessEnd>;
  /** Sets the terminal's size; nothing without a terminal or after its end. */
  resize(cols: number, rows: number): void;
  /** Sends a signal to the process alone. Nothing after `release`. */
  signal(signal: number): void;
  /** Sends a signal to the child's process group. Nothing after `release`. */
  signalGroup(signal: number): void;
  /** Sends a signal to the child and all its descendants, those in other sessions included. Nothing after `release`. */
  signalTree(signal: number): void;
  /** SIGKILL for the child and all its descendants; resolves when none is left alive. Nothing after `release`. */
  killTree(): Promise<void>;
  /** The out-of-memory killer struck in the child's own cgroup. False where it has none. */
  oomKilled(): boolean;
  /** Reaps the ended process and closes what is still open of its streams. Call it once, after `ended`. */
  release(): void;
}

/** Starts processes. */
export interface Processes {
  /**
   * Starts a child. Rejects with SpawnError when it could not be started; then nothing of it is left. Never blocks the
   * event loop, not even where the working directory or the command lies on a file system that hangs.
   * Aborting kills the child while it starts and rejects; once resolved, the signal has no effect.
   */
  spawn(request: SpawnRequest, abort?: AbortSignal): Promise<ChildProcess>;
}
