import type { CallOptions } from "./channel.ts";
import type { AttachOptions, KeptOptions, KeptPosition, WorkloadOutputOptions } from "./exec/keep.ts";
import type { RunOptions } from "./exec/process.ts";
import type { BridgeOptions, TcpOptions } from "./link/link.ts";

/** The names of all options of a type. The compiler checks that none is missing. */
export type Names<Options> = Readonly<Record<keyof Options, true>>;

const CALL: Names<CallOptions> = { signal: true, timeoutMs: true, waitForReady: true };
const KEPT: Names<KeptOptions> = {
  ...CALL,
  resume: true,
  onEvent: true,
  acknowledge: true,
  forget: true,
  failOnGap: true,
};
/** A position of a kept command is also valid as options, so that a call can continue there. */
const FROM: Names<Pick<AttachOptions, "fromNow"> & KeptPosition> = {
  execId: true,
  stdoutOffset: true,
  stderrOffset: true,
  stdinOffset: true,
  fromNow: true,
};
/** Option names by kind of call. */
export const OPTION_NAMES: Readonly<
  Record<"connect" | "call" | "kept" | "attach" | "workloadOutput" | "run", Readonly<Record<string, true>>>
> = {
  connect: {
    ...({
      address: true,
      caPem: true,
      certPem: true,
      keyPem: true,
      pinnedCertPem: true,
      serverName: true,
      connectTimeoutMs: true,
    } satisfies Names<Omit<TcpOptions, "token">>),
    ...({ bridge: true, env: true, token: true, connectTimeoutMs: true } satisfies Names<BridgeOptions>),
  },
  call: CALL,
  kept: KEPT,
  attach: { ...KEPT, ...FROM, terminal: true } satisfies Names<AttachOptions & KeptPosition>,
  workloadOutput: { ...CALL, resume: true, onEvent: true, failOnGap: true, ...FROM } satisfies Names<
    WorkloadOutputOptions & KeptPosition
  >,
  run: { ...CALL, input: true, maxOutputBytes: true, onStdout: true, onStderr: true } satisfies Names<RunOptions>,
};
