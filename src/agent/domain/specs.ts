/** What the management listener needs for mutual TLS, as PEM. */
export interface TlsMaterial {
  /** The server's certificate, followed by intermediate ones if any. */
  readonly cert: Buffer;
  readonly key: Buffer;
  /** The CAs whose client certificates are accepted. */
  readonly clientCa: Buffer;
}

/** A command of the configuration: the workload's ready_cmd. */
export interface ReadyCommandSpec {
  readonly args: readonly string[];
  readonly intervalMs: number;
  readonly timeoutMs: number;
}

/** What to run, where and as whom. */
export interface CommandSpec {
  readonly args: readonly string[];
  readonly env: ReadonlyMap<string, string>;
  /** Absolute, or empty: the workload's; where it has none, the user's home, else "/". */
  readonly cwd: string;
  /** `user`, `uid`, `user:group`, `uid:gid`, or empty: the workload's; where it has none, the agent's own identity. */
  readonly user: string;
}

/** The workload, if it has `args`, and what execs and hooks inherit from it (message Process, defaults filled in). */
export interface ProcessSpec extends CommandSpec {
  readonly readyCommand: ReadyCommandSpec | undefined;
  readonly stopGraceMs: number;
  /** The ring that keeps the workload's output; undefined: its outputs are the agent's own. */
  readonly output: { readonly bufferBytes: number } | undefined;
}

/** The configured hooks (message Hooks); undefined: not configured. */
export interface HooksSpec {
  readonly preSnapshot: CommandSpec | undefined;
  readonly postRestore: CommandSpec | undefined;
}
