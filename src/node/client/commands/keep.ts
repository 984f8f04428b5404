import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type ExecAttach,
  ExecAttachSchema,
  type ExecKeepSchema,
  type ExecStarted,
  ExecWhenFull,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { fromArguments, limitOf, offsetOf, terminalSize, wholeMilliseconds, wholeNumber } from "../arguments.ts";
import { type CallOptions, encoded } from "../grpc/channel.ts";
import { failure, type GuestError, invalidOption } from "../errors/errors.ts";
import type { ConnectOptions } from "../grpc/link/link.ts";
import { CALL, type Names } from "../options.ts";
import type { Plain } from "../plain.ts";
import type { OutputListeners } from "./stdio.ts";
import type { Frame } from "./wire.ts";

/** Options of a kept command (message ExecKeep). */
export interface KeepOptions {
  /**
   * Name of the command: 1 to 128 of the characters A-Z, a-z, 0-9, ".", "_" and "-". If a command already has this
   * name, the call fails with the code EXEC_NAME_IN_USE (status ALREADY_EXISTS).
   */
  readonly name: string;
  /**
   * Size of the agent's output buffer, for both streams together, in bytes; at most 16 MiB. Output that was read stays
   * in the buffer until newer output needs its place. Default: 1 MiB.
   */
  readonly bufferBytes?: number | undefined;
  /**
   * What the agent does when the buffer is full.
   *
   * "drop-oldest" (default): the agent drops the oldest bytes. This can happen even while a call is attached, if that
   * call reads more slowly than the command writes. The result then has `outputComplete: false`, and `onEvent` receives
   * a "gap".
   *
   * "block": the command is blocked until the client acknowledges output, so that nothing is lost. While no client is
   * attached, a command that has filled the buffer stays blocked.
   */
  readonly whenFull?: "drop-oldest" | "block" | undefined;
  /**
   * How long the agent keeps output and exit status after the command's end, in milliseconds of guest time. Default: 10
   * min.
   */
  readonly lingerMs?: number | undefined;
  /** Take over the name from a command that has ended, but that the agent has not forgotten yet. Default: false. */
  readonly replaceEnded?: boolean | undefined;
  /**
   * For how long the command counts as user activity while it runs, in milliseconds; at most 24 h. It counts whether or
   * not a call is attached to it. Time in which the session is frozen does not count. Default: 0, so that the command
   * does not count.
   */
  readonly awakeForMs?: number | undefined;
}

/** An event in the call of a kept command. */
export type KeptEvent =
  /** The connection is lost. With `resume` the client reconnects. */
  | { readonly kind: "disconnected"; readonly error: GuestError }
  /** The client has reconnected, and the call continues where it was. */
  | { readonly kind: "reconnected" }
  /**
   * The agent has dropped `bytes` bytes of the output, beginning at `offset`. The stream continues with the bytes after
   * this gap. At the time of this event, the caller may not have read all bytes before the gap.
   */
  | { readonly kind: "gap"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly bytes: number };

/**
 * Options for reconnecting after a lost connection. Do not confuse this type with the ResumeOptions of the entry
 * `./sandboxes`, which are the options of `Sandboxes.resume`.
 */
export interface ResumeOptions {
  /**
   * How long to retry, in milliseconds since the connection was lost. With Infinity, the client retries until the
   * caller ends the call. Default: 10 min.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Returns the current address and credentials. Called before each attempt, because a restore may change them.
   * Default: the client's address and credentials.
   */
  readonly connectOptions?: (() => ConnectOptions | Promise<ConnectOptions>) | undefined;
}

/** Options of a call that can be detached from its command and attached again. */
export interface KeptOptions extends CallOptions {
  /**
   * Reconnect when the connection is lost, and continue each stream where it stopped. `true` means the default options.
   * The client does not reconnect if another call has taken the command over. Default: false, so that a lost connection
   * makes `wait()` reject.
   */
  readonly resume?: boolean | ResumeOptions | undefined;
  /** Called when the connection is lost, when the client has reconnected, and for each gap in the output. */
  readonly onEvent?: ((event: KeptEvent) => void) | undefined;
  /**
   * When the agent may drop output. "auto" (default): as soon as it was read from the streams. "manual": as soon as the
   * caller passes its offset to `acknowledge()`, for callers that must store the output first. In both cases, an
   * `attach` with offsets acknowledges all output before these offsets.
   */
  readonly acknowledge?: "auto" | "manual" | undefined;
  /** Make the agent forget the command before `wait()` resolves. Default: true, except with `acknowledge: "manual"`. */
  readonly forget?: boolean | undefined;
  /**
   * At the first gap in the output, fail with OUTPUT_LOST and detach. If false, the call continues after a gap, and its
   * result has `outputComplete: false`. Default: true for a command that this call starts with `whenFull: "block"`,
   * otherwise false.
   */
  readonly failOnGap?: boolean | undefined;
}

/**
 * Options of `attach`. Without offsets and `fromNow`, the call receives all output that the agent still has, even if
 * another call has read it already. The library reads each output that has a callback.
 */
export interface AttachOptions<Output extends string | Buffer = string> extends KeptOptions, OutputListeners<Output> {
  /** Attach only to the command with this `execId`. Default: the command that has the name at the time of the call. */
  readonly execId?: string | undefined;
  /**
   * Number of bytes of standard output that the caller already has. If only one stream has an offset, the other stream
   * begins with new output.
   */
  readonly stdoutOffset?: number | undefined;
  /** Number of bytes of standard error that the caller already has. */
  readonly stderrOffset?: number | undefined;
  /** Receive only the output that the command writes after the attach. */
  readonly fromNow?: boolean | undefined;
  /** "utf8" (default): the output streams and the callbacks receive text. "buffer": they receive bytes. */
  readonly encoding?: (Output extends string ? "utf8" : "buffer") | undefined;
  /** The new size of the command's terminal; ignored for a command without a terminal. */
  readonly terminal?: { readonly cols: number; readonly rows: number } | undefined;
}

/** Options of `workloadOutput`. Without offsets and `fromNow`, the call receives all output that the agent still has. */
export type WorkloadOutputOptions<Output extends string | Buffer = string> = Omit<
  AttachOptions<Output>,
  "acknowledge" | "forget" | "terminal"
>;

/** The command that a call is attached to (message ExecStarted). */
export type Attachment = Pick<
  Plain<ExecStarted>,
  "pid" | "execId" | "stdinOffset" | "stdinClosed" | "terminal" | "stdoutEnd" | "stderrEnd"
>;

/**
 * Position of a call in the command's streams. It can be passed as the options of an `attach`, which then continues
 * there. It also says how much input the agent has received.
 */
export interface KeptPosition {
  readonly execId: string;
  /** Number of bytes of standard output that the caller has read, plus those that were lost in gaps. */
  readonly stdoutOffset: number;
  readonly stderrOffset: number;
  readonly stdinOffset: number;
}

export const KEPT: Names<KeptOptions> = {
  ...CALL,
  resume: true,
  onEvent: true,
  acknowledge: true,
  forget: true,
  failOnGap: true,
};
/**
 * The options that say where a call begins to read. They include every field of KeptPosition, so that a KeptPosition
 * can be passed as the options of a call that continues there.
 */
const FROM: Names<Pick<AttachOptions, "fromNow"> & KeptPosition> = {
  execId: true,
  stdoutOffset: true,
  stderrOffset: true,
  stdinOffset: true,
  fromNow: true,
};
export const LISTENERS: Names<OutputListeners> = { onStdout: true, onStderr: true };
export const ATTACH: Names<AttachOptions & KeptPosition> = {
  ...KEPT,
  ...FROM,
  ...LISTENERS,
  encoding: true,
  terminal: true,
};
export const WORKLOAD_OUTPUT: Names<WorkloadOutputOptions & KeptPosition> = {
  ...CALL,
  ...FROM,
  ...LISTENERS,
  encoding: true,
  resume: true,
  onEvent: true,
  failOnGap: true,
};

const DEFAULT_RESUME_MS = 600_000;

/** The caller's function that returns the current address and credentials; undefined if the caller gave none. */
export function redialOf({ resume }: KeptOptions): ResumeOptions["connectOptions"] {
  return typeof resume === "object" ? resume.connectOptions : undefined;
}

/**
 * Returns how long to try to reconnect, in milliseconds; 0 means not to reconnect. Throws GuestError
 * (INVALID_ARGUMENT).
 */
export function resumeTimeoutOf({ resume = false }: KeptOptions): number {
  if (typeof resume === "boolean") return resume ? DEFAULT_RESUME_MS : 0;
  const { timeoutMs = DEFAULT_RESUME_MS } = resume;
  return limitOf(timeoutMs, "resume.timeoutMs") ?? Number.POSITIVE_INFINITY;
}

const WHEN_FULL = { "drop-oldest": ExecWhenFull.DROP_OLDEST, block: ExecWhenFull.BLOCK } as const;

/**
 * Creates the ExecKeep message. Throws GuestError (INVALID_ARGUMENT) for values that the schema cannot express. The
 * agent checks all other rules.
 */
export function keepMessage(keep: KeepOptions): MessageInitShape<typeof ExecKeepSchema> {
  const { name, bufferBytes = 0, whenFull = "drop-oldest", lingerMs = 0, replaceEnded = false, awakeForMs = 0 } = keep;
  if (!Object.hasOwn(WHEN_FULL, whenFull))
    throw invalidOption("keep.whenFull", `keep.whenFull is ${JSON.stringify(whenFull)}; give drop-oldest or block`);
  return {
    name,
    bufferBytes: wholeNumber(bufferBytes, "keep.bufferBytes"),
    whenFull: WHEN_FULL[whenFull],
    lingerMs: BigInt(wholeMilliseconds(lingerMs, "keep.lingerMs")),
    replaceEnded,
    awakeForMs: BigInt(wholeMilliseconds(awakeForMs, "keep.awakeForMs")),
  };
}

/**
 * Creates the content of the attach frame. Without a name, the frame attaches to the workload's output. Throws
 * GuestError (INVALID_ARGUMENT).
 */
export function attachMessage(
  name: string | undefined,
  options: Omit<AttachOptions, keyof OutputListeners | "encoding">,
): ExecAttach {
  return fromArguments("the options of attach() are invalid", () => {
    const { execId = "", stdoutOffset, stderrOffset, fromNow = false, terminal } = options;
    const isOpen = stdoutOffset === undefined && stderrOffset === undefined && !fromNow;
    const message = create(ExecAttachSchema, {
      name: name ?? "",
      workload: name === undefined,
      execId,
      fromNow,
      ...(terminal && { size: terminalSize(terminal) }),
      stdoutOffset: isOpen ? 0n : offsetOf(stdoutOffset, "stdoutOffset"),
      stderrOffset: isOpen ? 0n : offsetOf(stderrOffset, "stderrOffset"),
    });
    // Encode the message once now, because an encoding error during the call could not be reported to the caller of
    // `attach`.
    encoded(ExecAttachSchema, message);
    return message;
  });
}

/** Creates the error for an agent that can run commands, but is too old to keep commands or the workload's output. */
export function keepUnsupported(agentVersion: string | undefined, what: string = "commands"): GuestError {
  const who = agentVersion === undefined ? "the agent" : `the agent (version ${agentVersion})`;
  const message = `${who} cannot keep ${what}: it is older than this client`;
  return failure("FAILED_PRECONDITION", "KEEP_UNSUPPORTED", message);
}

/**
 * Returns the error KEEP_UNSUPPORTED if a call failed because the agent is too old. Returns any other error unchanged.
 * Two errors are signs of an old agent:
 *
 * - FRAME_ORDER: the agent does not know the frame `attach`.
 * - EXEC_UNKNOWN, if the call requested the workload's output without `exec_id`: the agent does not know the field
 *   `workload`, so it has looked up a command with an empty name. A newer agent returns EXEC_UNKNOWN only if the call
 *   has an `exec_id`.
 *
 * @param first the first frame of the call
 */
export function orOlderAgent(error: GuestError, first: Frame, agentVersion: string | undefined): GuestError {
  if (first.case !== "attach") return error;
  const { workload = false, execId = "" } = first.value ?? {};
  const isNameless = workload && execId === "" && error.reason === "EXEC_UNKNOWN";
  if (error.reason !== "FRAME_ORDER" && !isNameless) return error;
  return keepUnsupported(agentVersion, workload ? "the workload's output" : undefined);
}
