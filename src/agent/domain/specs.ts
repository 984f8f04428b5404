/** What the management listener needs for mutual TLS, as PEM. */
export interface TlsMaterial {
  /** The server's certificate, followed by intermediate ones if any. */
  readonly cert: Buffer;
  /** Its private key. */
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

/** The workload and what execs and hooks inherit from it (message Process, defaults filled in). */
export interface ProcessSpec {
  /** Empty: there is no workload. */
  readonly args: readonly string[];
  readonly env: ReadonlyMap<string, string>;
  /** Absolute, or empty: the user's home, else "/". */
  readonly cwd: string;
  /** `user`, `uid`, `user:group`, `uid:gid`, or empty: the agent's own identity. */
  readonly user: string;
  readonly readyCommand: ReadyCommandSpec | undefined;
  readonly stopGraceMs: number;
}

/** A configured hook (message Hook). */
export interface HookSpec {
  readonly args: readonly string[];
  readonly env: ReadonlyMap<string, string>;
  /** Empty: that of the workload. */
  readonly cwd: string;
  /** Empty: that of the workload. */
  readonly user: string;
}

/** The configured hooks (message Hooks); undefined: not configured. */
export interface HooksSpec {
  readonly preSnapshot: HookSpec | undefined;
  readonly postRestore: HookSpec | undefined;
}
