/**
 * The workload of a sandbox: the message `Process` of process.proto, in the JSON form of protobuf. That form accepts
 * two spellings of each field name; give only one of them. The agent checks the values, and does not start if it
 * refuses one.
 */
export interface ProcessSpec {
  /**
   * Program of the workload, and its arguments. If the name of the program has no slash, the agent looks for it in the
   * directories of PATH in the workload's environment. Default: no workload, so that the agent runs until it is
   * stopped.
   */
  readonly args?: readonly string[] | undefined;
  /**
   * Variables that the agent adds to the environment that it inherited. Commands and hooks get these variables too. A
   * variable with the value undefined is ignored.
   */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Working directory, an absolute path. Default: the home directory of `user`, or "/" without a `user`. */
  readonly cwd?: string | undefined;
  /**
   * User that runs the workload, in the form `user`, `uid`, `user:group` or `uid:gid`. Commands run as this user too,
   * unless they name another user. Default: the agent's own user.
   */
  readonly user?: string | undefined;
  /** Command that checks whether the workload is ready. Default: the workload is ready as soon as it runs. */
  readonly readyCmd?: ReadyCommandSpec | undefined;
  /** The same field as `readyCmd`, in snake case. */
  readonly ready_cmd?: ReadyCommandSpec | undefined;
  /**
   * Time that the workload and all its descendants have to exit after the SIGTERM of a stop, in milliseconds. After
   * this time they get SIGKILL. Default: 10 s; in `startTestAgent`, 1 s.
   */
  readonly stopGraceMs?: number | undefined;
  /** The same field as `stopGraceMs`, in snake case. */
  readonly stop_grace_ms?: number | undefined;
  /** Where the workload's standard output and error go. Default: `inherit`. */
  readonly output?: ProcessOutputSpec | undefined;
}

/** A command that the agent runs again and again. Exit code 0 means that the workload is ready. */
export interface ReadyCommandSpec {
  /** Program and its arguments. */
  readonly args: readonly string[];
  /** Pause from the end of one run to the start of the next run, in milliseconds. Default: 1 s. */
  readonly intervalMs?: number | undefined;
  /** The same field as `intervalMs`, in snake case. */
  readonly interval_ms?: number | undefined;
  /**
   * Time that one run may take, in milliseconds. After this time, the run counts as failed, and its processes get
   * SIGTERM, and SIGKILL 2 s later. Default: 5 s.
   */
  readonly timeoutMs?: number | undefined;
  /** The same field as `timeoutMs`, in snake case. */
  readonly timeout_ms?: number | undefined;
}

/** Where the workload's standard output and error go. Set only one of `inherit` and `keep`. */
export interface ProcessOutputSpec {
  /** The agent's own streams, which are the console of the sandbox. */
  readonly inherit?: Readonly<Record<string, never>> | undefined;
  /** The agent's own streams, and also a buffer that `commands.workloadOutput` reads. */
  readonly keep?: KeepOutputSpec | undefined;
}

/** The buffer that keeps the last output of the workload. */
export interface KeepOutputSpec {
  /** Size of the buffer for both streams together, in bytes; at most 16 MiB. Default: 1 MiB. */
  readonly bufferBytes?: number | undefined;
  /** The same field as `bufferBytes`, in snake case. */
  readonly buffer_bytes?: number | undefined;
}

/** The hooks of a sandbox: the message `Hooks` of process.proto, in the same form as `ProcessSpec`. */
export interface HooksSpec {
  /** Runs before a snapshot or standby, so that the workload can reach a consistent state. Default: no such hook. */
  readonly preSnapshot?: HookSpec | undefined;
  /** The same field as `preSnapshot`, in snake case. */
  readonly pre_snapshot?: HookSpec | undefined;
  /** Runs after a restore, once the restore steps have ended. Default: no such hook. */
  readonly postRestore?: HookSpec | undefined;
  /** The same field as `postRestore`, in snake case. */
  readonly post_restore?: HookSpec | undefined;
}

/** A hook, which is a command in the workload's session. */
export interface HookSpec {
  /** Program and its arguments. */
  readonly args: readonly string[];
  /**
   * Variables for the hook: they replace variables of `ProcessSpec.env` with the same names. A variable with the value
   * undefined is ignored.
   */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Working directory, an absolute path. Default: the workload's working directory. */
  readonly cwd?: string | undefined;
  /** User that runs the hook, in the same form as `ProcessSpec.user`. Default: the workload's user. */
  readonly user?: string | undefined;
}
