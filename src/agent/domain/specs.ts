/** PEM data for mutual TLS on the management listener. */
export interface TlsMaterial {
  /** The server's certificate, followed by intermediate certificates if any. */
  readonly cert: Buffer;
  readonly key: Buffer;
  /** CA certificates; client certificates issued by them are accepted. */
  readonly clientCa: Buffer;
}

/** The command that reports whether the workload is ready (`ready_cmd` of the process spec), and when it runs. */
export interface ReadyCommandSpec {
  readonly args: readonly string[];
  readonly intervalMs: number;
  readonly timeoutMs: number;
}

/** What to run, where and as which user. */
export interface CommandSpec {
  readonly args: readonly string[];
  readonly env: ReadonlyMap<string, string>;
  /**
   * An absolute path, or empty. If it is empty, the workload's directory is used. If the workload's directory is also
   * empty, the user's home directory is used, or "/" if the user has none.
   */
  readonly cwd: string;
  /**
   * `user`, `uid`, `user:group`, `uid:gid`, or empty. If it is empty, the workload's user is used. If the workload has
   * no user, the agent's own identity is used.
   */
  readonly user: string;
}

/**
 * The workload, and the settings that commands and hooks inherit from it (message Process). With empty `args`, the
 * agent starts no workload, but the settings apply. A field that the message does not set has its default value.
 */
export interface ProcessSpec extends CommandSpec {
  readonly readyCommand: ReadyCommandSpec | undefined;
  readonly stopGraceMs: number;
  /** Ring buffer for the workload's output; if undefined, the workload writes to the agent's own streams. */
  readonly output: { readonly bufferBytes: number } | undefined;
}

/** The configured hooks (message Hooks). A hook that is not configured is undefined. */
export interface HooksSpec {
  readonly preSnapshot: CommandSpec | undefined;
  readonly postRestore: CommandSpec | undefined;
}
