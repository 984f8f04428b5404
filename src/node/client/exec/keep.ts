import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type ExecAttach,
  ExecAttachSchema,
  type ExecKeepSchema,
  type ExecStarted,
  ExecWhenFull,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { fromArguments, offsetOf, wholeMilliseconds, wholeNumber } from "../arguments.ts";
import { type CallOptions, encoded } from "../channel.ts";
import { failure, type GuestError, invalidOption } from "../errors.ts";
import type { ConnectOptions } from "../link/link.ts";
import type { Plain } from "../plain.ts";

/** How a command is kept for later calls (message ExecKeep). */
export interface KeepOptions {
  /** Name to find it by: 1 to 128 of A-Z, a-z, 0-9, ".", "_" and "-". One in use is refused: ALREADY_EXISTS. */
  readonly name: string;
  /** Bytes of output that the agent holds, of both streams together, at most 16 MiB. Default: 1 MiB. */
  readonly bufferBytes?: number | undefined;
  /** When the buffer is full: "drop-oldest" bytes (default), or "block" the command until some are acknowledged. */
  readonly whenFull?: "drop-oldest" | "block" | undefined;
  /** How long output and exit stay after the command's end, in milliseconds of the guest's time. Default: 10 min. */
  readonly lingerMs?: number | undefined;
  /** Take the name of a command that has ended and is not forgotten yet. */
  readonly replaceEnded?: boolean | undefined;
  /**
   * For how long the running command counts as user activity, attached or not, in milliseconds of the session's time:
   * at most 24 h. Default: 0, not at all.
   */
  readonly awakeForMs?: number | undefined;
}

/** What happens to a kept command's call while it runs. */
export type KeptEvent =
  /** The connection is lost; with `resume` it is dialled anew. */
  | { readonly kind: "disconnected"; readonly error: GuestError }
  /** The call continues where it was. */
  | { readonly kind: "reconnected" }
  /** The agent no longer has `bytes` bytes from `offset` on; the next follow them. Earlier ones may be unread. */
  | { readonly kind: "gap"; readonly stream: "stdout" | "stderr"; readonly offset: number; readonly bytes: number };

/** How a lost connection is dialled anew. */
export interface ResumeOptions {
  /** How long to try, in milliseconds since it was lost; Infinity: until the call is given up. Default: 10 min. */
  readonly timeoutMs?: number | undefined;
  /** Address and credentials for the next attempt, asked for at each: a restore may change them. Default: as before. */
  readonly connectOptions?: (() => ConnectOptions | Promise<ConnectOptions>) | undefined;
}

/** Options of a call that may be detached from its command and taken up again. */
export interface KeptOptions extends CallOptions {
  /**
   * Dial again when the connection is lost, and continue where the streams were; `true` for the defaults. A call that
   * another took over does not come back. Default: false; a lost connection is then an error of `wait()`.
   */
  readonly resume?: boolean | ResumeOptions | undefined;
  /** Called when the connection is lost, when there is one again, and for each gap. */
  readonly onEvent?: ((event: KeptEvent) => void) | undefined;
  /**
   * Which output the agent may drop: what was read from the streams ("auto", the default), or what `acknowledge()`
   * names ("manual"), for a reader that stores it first. An `attach` acknowledges everything before its offsets.
   */
  readonly acknowledge?: "auto" | "manual" | undefined;
  /** Have the agent forget the command before `wait()` resolves. Default: true with `acknowledge: "auto"`. */
  readonly forget?: boolean | undefined;
  /** Fail with DATA_LOSS at the first gap, and detach. Default: true for a command started here with "block". */
  readonly failOnGap?: boolean | undefined;
}

/** Options of `attach`. Without offsets and `fromNow`: all output that the agent still holds. */
export interface AttachOptions extends KeptOptions {
  /** Identity of the command. Default: whichever command has the name now. */
  readonly execId?: string | undefined;
  /** Bytes of standard output that the caller already has. A stream without an offset begins with new output. */
  readonly stdoutOffset?: number | undefined;
  /** The same for standard error. */
  readonly stderrOffset?: number | undefined;
  /** Only output from now on. */
  readonly fromNow?: boolean | undefined;
  /** The size of its terminal from now on; ignored where it has none. */
  readonly terminal?: { readonly cols: number; readonly rows: number } | undefined;
}

/** Options of `workloadOutput`. Without offsets and `fromNow`: all output that the agent still holds. */
export type WorkloadOutputOptions = Omit<AttachOptions, "acknowledge" | "forget" | "terminal">;

/** The command that a call is attached to (message ExecStarted). */
export type Attachment = Pick<
  Plain<ExecStarted>,
  "pid" | "execId" | "stdinOffset" | "stdinClosed" | "terminal" | "stdoutEnd" | "stderrEnd"
>;

/** A call's position: options of an `attach` that continues there, and how much input the agent has taken. */
export interface KeptPosition {
  readonly execId: string;
  /** Bytes of standard output that were read from the stream, including those lost in gaps. */
  readonly stdoutOffset: number;
  readonly stderrOffset: number;
  readonly stdinOffset: number;
}

const DEFAULT_RESUME_MS = 600_000;

/** Where to dial next, if the address has changed. */
export function redialOf({ resume }: KeptOptions): ResumeOptions["connectOptions"] {
  return typeof resume === "object" ? resume.connectOptions : undefined;
}

/** How long to try to reach an agent again, in milliseconds; 0: not at all. Throws GuestError (INVALID_ARGUMENT). */
export function resumeTimeoutOf({ resume = false }: KeptOptions): number {
  if (typeof resume === "boolean") return resume ? DEFAULT_RESUME_MS : 0;
  const { timeoutMs = DEFAULT_RESUME_MS } = resume;
  return timeoutMs === Number.POSITIVE_INFINITY ? timeoutMs : wholeMilliseconds(timeoutMs, "resume.timeoutMs");
}

const WHEN_FULL = { "drop-oldest": ExecWhenFull.DROP_OLDEST, block: ExecWhenFull.BLOCK } as const;

/**
 * The message of these options. Throws GuestError (INVALID_ARGUMENT) for what the schema cannot say; the agent checks
 * more.
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

/** The attach frame's content; without a name for the workload's output. Throws GuestError (INVALID_ARGUMENT). */
export function attachMessage(name: string | undefined, options: AttachOptions): ExecAttach {
  return fromArguments("the options of attach are invalid", () => {
    const { execId = "", stdoutOffset, stderrOffset, fromNow = false, terminal } = options;
    const isOpen = stdoutOffset === undefined && stderrOffset === undefined && !fromNow;
    const message = create(ExecAttachSchema, {
      name: name ?? "",
      workload: name === undefined,
      execId,
      fromNow,
      ...(terminal && { size: { cols: wholeNumber(terminal.cols, "cols"), rows: wholeNumber(terminal.rows, "rows") } }),
      stdoutOffset: isOpen ? 0n : offsetOf(stdoutOffset, "stdoutOffset"),
      stderrOffset: isOpen ? 0n : offsetOf(stderrOffset, "stderrOffset"),
    });
    // Encode it now: later it would fail in the middle of a call.
    encoded(ExecAttachSchema, message);
    return message;
  });
}

/** The error of an agent that runs commands but cannot keep them, or the workload's output. */
export function keepUnsupported(agentVersion: string | undefined, what: string = "commands"): GuestError {
  const who = agentVersion === undefined ? "the agent" : `the agent (version ${agentVersion})`;
  const message = `${who} cannot keep ${what}: it is older than this client`;
  return failure("FAILED_PRECONDITION", "KEEP_UNSUPPORTED", message);
}
