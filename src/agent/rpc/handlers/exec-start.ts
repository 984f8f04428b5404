import {
  AgentError,
  EXEC_ENTRIES_LIMIT,
  EXEC_STRINGS_LIMIT_BYTES,
  frameOrder,
  nextTurn,
  type StdioPlan,
  STRINGS_A_TURN,
} from "../../domain/index.ts";
import type { AttachRequest, ExecRequest, KeepRequest, WhenFull } from "../../exec/index.ts";
import {
  ExecFrameSchema,
  type ExecKeep,
  ExecStartSchema,
  type Terminal,
  ExecWhenFull,
} from "../../../shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { decodeMessage } from "../codec.ts";
import { malformedMessage } from "../framing.ts";
import { FIELD_LIMIT, FieldCursor, LENGTH_DELIMITED, tooManyFields } from "../wire.ts";

const START = ExecFrameSchema.field.start.number;
const ARGS = ExecStartSchema.field.args.number;
const ENV = ExecStartSchema.field.env.number;
/** Of an entry of a map field (protobuf's encoding). */
const KEY = 1;
const VALUE = 2;
/** What a string costs beside its bytes: its NUL and the pointer to it. */
const STRING_OVERHEAD_BYTES = 9;

const DEFAULT_COLS = 80;
const DEFAULT_ROWS = 24;
const DEFAULT_TERM = "xterm-256color";

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The first frame of a call: what to run, or what to attach to. */
export type FirstFrame = ExecRequest | AttachRequest;

/** Reads a call's first frame. Throws INVALID_ARGUMENT for any but start or attach, RESOURCE_EXHAUSTED over a limit. */
export async function decodeFirst(message: Uint8Array | undefined): Promise<FirstFrame> {
  if (message === undefined)
    throw frameOrder("the request ended before its first frame, which must be start or attach");
  return new StartReader(message).read();
}

/**
 * Reads a start frame. Its arguments and variables, of which there may be many, are counted and read here. The
 * generated decoder takes ten times as long for them, and loses a variable named `__proto__`. It reads the rest.
 */
class StartReader {
  readonly #message: Uint8Array;
  /** Latin1, one character a byte: the bytes of ASCII strings are read only once. */
  readonly #latin1: string;
  readonly #args: string[] = [];
  readonly #env = new Map<string, string>();
  readonly #rest: Rest;
  #entries = 0;
  #stringsBytes = 0;

  constructor(message: Uint8Array) {
    this.#message = message;
    this.#rest = new Rest(message);
    this.#latin1 = Buffer.from(message.buffer, message.byteOffset, message.length).toString("latin1");
  }

  async read(): Promise<FirstFrame> {
    const frame = new FieldCursor(this.#message);
    let hasStart = false;
    const others = new Rest(this.#message);
    while (frame.next()) {
      if (frame.number === START && frame.wireType === LENGTH_DELIMITED) {
        hasStart = true;
        await this.#readStart(frame.valueStart, frame.valueEnd);
      } else {
        others.add(frame);
      }
    }
    const other = decodeMessage(ExecFrameSchema, others.bytes()).frame;
    if (other.case === "attach" && !hasStart) return other.value;
    if (other.case !== undefined || !hasStart) {
      throw frameOrder(`the first frame is ${other.case ?? "empty"}; it must be start or attach`);
    }
    const { cwd, user, terminal, stdin, timeoutMs, keep } = decodeMessage(ExecStartSchema, this.#rest.bytes());
    return {
      args: this.#args,
      env: this.#env,
      cwd,
      user,
      stdio: terminal === undefined ? { kind: "pipes", stdin } : terminalPlan(terminal),
      timeoutMs: Number(timeoutMs),
      keep: keep && keepRequest(keep),
    };
  }

  async #readStart(start: number, end: number): Promise<void> {
    const fields = new FieldCursor(this.#message, start, end);
    while (fields.next()) {
      const { number, valueStart, valueEnd } = fields;
      const isBulk = fields.wireType === LENGTH_DELIMITED && (number === ARGS || number === ENV);
      if (!isBulk) this.#rest.add(fields);
      else if (number === ARGS) this.#readArgument(valueStart, valueEnd);
      else this.#readVariable(valueStart, valueEnd);
      if (isBulk && this.#entries % STRINGS_A_TURN === 0) await nextTurn();
    }
  }

  #readArgument(start: number, end: number): void {
    this.#count(end - start);
    this.#args.push(this.#text(start, end));
  }

  /** If a field is repeated, its last value counts. */
  #readVariable(start: number, end: number): void {
    let keyStart = start;
    let keyEnd = start;
    let valueStart = start;
    let valueEnd = start;
    const fields = new FieldCursor(this.#message, start, end);
    while (fields.next()) {
      if (fields.wireType !== LENGTH_DELIMITED) continue;
      if (fields.number === KEY) {
        keyStart = fields.valueStart;
        keyEnd = fields.valueEnd;
      } else if (fields.number === VALUE) {
        valueStart = fields.valueStart;
        valueEnd = fields.valueEnd;
      }
    }
    this.#count(keyEnd - keyStart + "=".length + valueEnd - valueStart);
    this.#env.set(this.#text(keyStart, keyEnd), this.#text(valueStart, valueEnd));
  }

  #count(sizeBytes: number): void {
    this.#entries += 1;
    this.#stringsBytes += sizeBytes + STRING_OVERHEAD_BYTES;
    if (this.#entries > EXEC_ENTRIES_LIMIT)
      throw tooLong(`are more than ${EXEC_ENTRIES_LIMIT} together`, EXEC_ENTRIES_LIMIT);
    if (this.#stringsBytes > EXEC_STRINGS_LIMIT_BYTES) {
      const limit = `are larger than ${EXEC_STRINGS_LIMIT_BYTES} bytes, each with its NUL and a pointer of 8 bytes`;
      throw tooLong(limit, EXEC_STRINGS_LIMIT_BYTES);
    }
  }

  #text(start: number, end: number): string {
    for (let at = start; at < end; at++) if ((this.#message[at] ?? 0) > 0x7f) return this.#decode(start, end);
    return this.#latin1.slice(start, end);
  }

  #decode(start: number, end: number): string {
    try {
      return UTF8.decode(this.#message.subarray(start, end));
    } catch (cause) {
      throw malformedMessage("an argument or variable of the request is not UTF-8", cause);
    }
  }
}

/** The fields of a message that are left to the generated decoder. */
class Rest {
  readonly #message: Uint8Array;
  readonly #parts: Uint8Array[] = [];

  constructor(message: Uint8Array) {
    this.#message = message;
  }

  add({ start, valueEnd }: FieldCursor): void {
    if (this.#parts.length === FIELD_LIMIT) throw tooManyFields();
    this.#parts.push(this.#message.subarray(start, valueEnd));
  }

  bytes(): Uint8Array {
    return Buffer.concat(this.#parts);
  }
}

function terminalPlan({ cols, rows, term }: Terminal): StdioPlan {
  return {
    kind: "terminal",
    cols: cols === 0 ? DEFAULT_COLS : cols,
    rows: rows === 0 ? DEFAULT_ROWS : rows,
    term: term === "" ? DEFAULT_TERM : term,
  };
}

const WHEN_FULL: Readonly<Record<ExecWhenFull, WhenFull>> = {
  [ExecWhenFull.UNSPECIFIED]: "drop_oldest",
  [ExecWhenFull.DROP_OLDEST]: "drop_oldest",
  [ExecWhenFull.BLOCK]: "block",
};

function keepRequest({ name, bufferBytes, whenFull, lingerMs, replaceEnded, awakeForMs }: ExecKeep): KeepRequest {
  // A number without a name in this agent is an unknown value.
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

function tooLong(problem: string, limit: number): AgentError {
  const message = `start.args and start.env ${problem}; pass large data by stdin or a file`;
  return new AgentError("RESOURCE_EXHAUSTED", "EXEC_ARGS_TOO_LONG", message, { limit: String(limit) });
}
