/** How a command ended (message ExecExit). */
export interface ExecResult {
  /** 128 + signal when a signal ended it. */
  readonly code: number;
  /** 0 when it exited by itself. */
  readonly signal: number;
  readonly coreDumped: boolean;
  readonly timedOut: boolean;
  readonly oomKilled: boolean;
  readonly outputComplete: boolean;
  readonly durationMs: number;
}

/** Name of an output stream. A terminal has stdout only. */
export type OutputStream = "stdout" | "stderr";

/** Where an exec's frames go, in the order of the calls. */
export interface ExecOutput {
  started(pid: number): void;
  /** `release` is called once the bytes are no longer needed; until then the command is held back. */
  output(stream: OutputStream, bytes: Uint8Array, release: () => void): void;
  exit(result: ExecResult): void;
}
