import { frameOrder, invalidField } from "../domain/index.ts";

/** What to run in a terminal. */
interface TerminalRequest {
  readonly cols: number;
  readonly rows: number;
  /** Value of TERM unless Process.env or the request names it. */
  readonly term: string;
}

/** What to run and how (message ExecStart). */
export interface ExecRequest {
  readonly args: readonly string[];
  readonly env: ReadonlyMap<string, string>;
  /** Empty: Process.cwd, else the user's home, else "/". */
  readonly cwd: string;
  /** Empty: Process.user. */
  readonly user: string;
  readonly terminal: TerminalRequest | undefined;
  /** Connect standard input to the client; a terminal always does. */
  readonly stdin: boolean;
  /** 0: no limit. */
  readonly timeoutMs: number;
}

/** A frame from the client after the first. */
export type ExecInput =
  /** `release`, where there is one, is called once the bytes are no longer needed. */
  | { readonly kind: "stdin"; readonly bytes: Uint8Array; readonly release?: () => void }
  | { readonly kind: "stdin_close" }
  | { readonly kind: "resize"; readonly cols: number; readonly rows: number }
  | { readonly kind: "signal"; readonly number: number };

const SIGNAL_MAX = 64;
const TERMINAL_SIZE_MAX = 65_535;
const NUL = "\0";
/** Longest part of a variable's name that an error shows. */
const SHOWN_NAME_CHARACTERS = 100;

/** Throws INVALID_ARGUMENT for a start frame from which no command could be run. */
export function checkExecRequest(request: ExecRequest): void {
  if (request.args.length === 0) throw invalidField("start.args", "is empty: name the command to run");
  if (request.args[0] === "") throw invalidField("start.args[0]", "is empty: name the command to run");
  const faulty = request.args.findIndex((argument) => argument.includes(NUL));
  if (faulty >= 0) throw invalidField(`start.args[${faulty}]`, "holds a NUL byte");
  for (const [name, value] of request.env) checkVariable(name, value);
  if (request.cwd !== "" && !request.cwd.startsWith("/")) throw invalidField("start.cwd", "is not an absolute path");
  if (request.cwd.includes(NUL)) throw invalidField("start.cwd", "holds a NUL byte");
  if (request.terminal !== undefined) {
    checkTerminalSize("start.terminal", request.terminal.cols, request.terminal.rows);
    if (request.terminal.term.includes(NUL)) throw invalidField("start.terminal.term", "holds a NUL byte");
  }
}

function checkVariable(name: string, value: string): void {
  if (name === "") throw invalidField(variable(name), "has an empty name");
  if (name.includes("=")) throw invalidField(variable(name), "has a name that holds '='");
  if (name.includes(NUL)) throw invalidField(variable(name), "has a name that holds a NUL byte");
  if (value.includes(NUL)) throw invalidField(variable(name), "holds a NUL byte");
}

/** Cuts the name at '=': what follows is a value that slipped in, and may be a secret. */
function variable(name: string): string {
  const [shown = ""] = name.split("=", 1);
  return `start.env[${JSON.stringify(shown.slice(0, SHOWN_NAME_CHARACTERS))}]`;
}

function checkTerminalSize(field: string, cols: number, rows: number): void {
  if (cols < 0 || rows < 0 || cols > TERMINAL_SIZE_MAX || rows > TERMINAL_SIZE_MAX) {
    throw invalidField(field, `is ${cols}x${rows}: cols and rows must be 0 to ${TERMINAL_SIZE_MAX}`);
  }
}

/** Checks order and bounds of the frames that follow a start frame. */
export class ExecInputOrder {
  readonly #hasTerminal: boolean;
  readonly #hasStdin: boolean;
  #stdinClosed = false;

  /** Takes only what it needs: the request may be large and must not stay in memory while the command runs. */
  constructor({ terminal, stdin }: Pick<ExecRequest, "terminal" | "stdin">) {
    this.#hasTerminal = terminal !== undefined;
    this.#hasStdin = stdin || this.#hasTerminal;
  }

  /** Throws INVALID_ARGUMENT when the frame is out of order or out of bounds. */
  check(frame: ExecInput): void {
    switch (frame.kind) {
      case "stdin":
        if (this.#stdinClosed) throw frameOrder("stdin frame after stdin_close");
        if (!this.#hasStdin) {
          throw frameOrder("stdin frame, but start.stdin was false");
        }
        return;
      case "stdin_close":
        if (this.#stdinClosed) throw frameOrder("second stdin_close frame");
        this.#stdinClosed = true;
        return;
      case "resize":
        if (!this.#hasTerminal) throw frameOrder("resize frame, but start.terminal was absent");
        checkTerminalSize("resize", frame.cols, frame.rows);
        return;
      case "signal":
        if (frame.number < 1 || frame.number > SIGNAL_MAX) {
          throw invalidField("signal.number", `is ${frame.number}: it must be 1 to ${SIGNAL_MAX}`);
        }
    }
  }
}
