import {
  AgentError,
  EXEC_ENTRIES_LIMIT,
  EXEC_STRINGS_LIMIT_BYTES,
  frameOrder,
  type StdioPlan,
} from "../../domain/index.ts";
import type { AttachRequest, ExecRequest, KeepRequest, WhenFull } from "../../exec/index.ts";
import {
  ExecFrameSchema,
  type ExecKeep,
  type ExecStart,
  ExecWhenFull,
  type Terminal,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { decodeMessage } from "../codec.ts";
import { FIELD_LIMIT } from "../wire.ts";

/**
 * Bytes that each string takes on the new process's stack in addition to its content: a NUL and the pointer to the
 * string.
 */
const STRING_OVERHEAD_BYTES = 9;

const DEFAULT_COLS = 80;
const DEFAULT_ROWS = 24;
const DEFAULT_TERM = "xterm-256color";

/** The first frame of a call: what to run, or which command to attach to. */
export type FirstFrame = ExecRequest | AttachRequest;

/**
 * Decodes the first frame of a call. Throws INVALID_ARGUMENT if the frame is neither a start nor an attach frame, and
 * RESOURCE_EXHAUSTED if the frame exceeds a limit.
 */
export function decodeFirst(message: Uint8Array | undefined): FirstFrame {
  if (message === undefined)
    throw frameOrder('the request ended before its first frame, which must be a "start" or "attach" frame');
  // The decoder counts arguments and variables before it creates objects for them.
  const { frame } = decodeMessage(ExecFrameSchema, message, EXEC_ENTRIES_LIMIT + FIELD_LIMIT, tooManyEntries);
  if (frame.case === "attach") return frame.value;
  if (frame.case !== "start")
    throw frameOrder(`the first frame is ${frame.case ?? "empty"}; it must be a "start" or "attach" frame`);
  const { args, env, cwd, user, terminal, stdin, timeoutMs, keep } = frame.value;
  checkLimits(frame.value, message.length);
  return {
    args,
    env: new Map(Object.entries(env)),
    cwd,
    user,
    stdio: terminal === undefined ? { kind: "pipes", stdin } : terminalPlan(terminal),
    timeoutMs: Number(timeoutMs),
    keep: keep && keepRequest(keep),
  };
}

function checkLimits({ args, env }: ExecStart, messageBytes: number): void {
  const variables = Object.entries(env);
  const entries = args.length + variables.length;
  if (entries > EXEC_ENTRIES_LIMIT) throw tooManyEntries();
  const overheadBytes = entries * STRING_OVERHEAD_BYTES;
  if (messageBytes + overheadBytes <= EXEC_STRINGS_LIMIT_BYTES) return;
  let stringsBytes = overheadBytes;
  for (const argument of args) stringsBytes += Buffer.byteLength(argument);
  for (const [name, value] of variables) stringsBytes += Buffer.byteLength(`${name}=${value}`);
  if (stringsBytes <= EXEC_STRINGS_LIMIT_BYTES) return;
  const problem = `exceed ${EXEC_STRINGS_LIMIT_BYTES} bytes in all (each string counts 9 bytes more than its length, for its NUL and its pointer)`;
  throw tooLong(problem, EXEC_STRINGS_LIMIT_BYTES);
}

function terminalPlan({ cols, rows, term, iutf8 }: Terminal): StdioPlan {
  return {
    kind: "terminal",
    cols: cols === 0 ? DEFAULT_COLS : cols,
    rows: rows === 0 ? DEFAULT_ROWS : rows,
    term: term === "" ? DEFAULT_TERM : term,
    iutf8,
  };
}

const WHEN_FULL: Readonly<Record<ExecWhenFull, WhenFull>> = {
  [ExecWhenFull.UNSPECIFIED]: "drop_oldest",
  [ExecWhenFull.DROP_OLDEST]: "drop_oldest",
  [ExecWhenFull.BLOCK]: "block",
};

function keepRequest({ name, bufferBytes, whenFull, lingerMs, replaceEnded, awakeForMs }: ExecKeep): KeepRequest {
  // Undefined if this version of the agent does not know the client's value of ExecWhenFull.
  const known: WhenFull | undefined = WHEN_FULL[whenFull];
  return {
    name,
    bufferBytes,
    whenFull: known,
    lingerMs: Number(lingerMs),
    replaceEnded,
    awakeForMs: Number(awakeForMs),
  };
}

function tooManyEntries(): AgentError {
  return tooLong(`together have more than ${EXEC_ENTRIES_LIMIT} entries`, EXEC_ENTRIES_LIMIT);
}

function tooLong(problem: string, limit: number): AgentError {
  const message = `start.args and start.env ${problem}; pass large data through stdin or a file`;
  return new AgentError("RESOURCE_EXHAUSTED", "EXEC_ARGS_TOO_LONG", message, { limit: String(limit) });
}
