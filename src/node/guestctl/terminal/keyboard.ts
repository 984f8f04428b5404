import { Transform } from "node:stream";
import type { GuestProcess } from "../../client/index.ts";
import { CliError, sendInput, UsageError } from "../cli/index.ts";
import { enterRawMode } from "./terminal.ts";

/** Connects standard input to a command until it is disposed of. */
export interface Keyboard extends Disposable {
  /** A promise that rejects with CliError when the user disconnects with the escape character. It never resolves. */
  readonly left: Promise<never>;
}

/** The command that receives the keys, and how the keyboard is connected to it. */
interface Typed {
  readonly process: GuestProcess<Buffer>;
  readonly isTerminal: boolean;
  readonly escape: number | undefined;
  /** What happens to the command when the user disconnects, as text for a message. */
  readonly leaving: string;
}

/**
 * Connects standard input to a command. If both are terminals, the local one becomes raw, and the escape character is
 * recognized.
 */
export function openKeyboard({ process, isTerminal, escape, leaving }: Typed, host: NodeJS.Process): Keyboard {
  const raw = isTerminal && host.stdin.isTTY ? enterRawMode(host) : undefined;
  let leave: (why: CliError) => void = () => undefined;
  const left = new Promise<never>((_resolve, reject) => {
    leave = reject;
  });
  // Without this handler, a rejection of `left` that nobody awaits would end the process.
  left.catch(() => undefined);
  const say = (...lines: readonly string[]): void =>
    void host.stderr.write(lines.map((line) => `${line}\r\n`).join(""));
  const filterFor = (key: number): EscapeFilter => {
    const name = escapeCharName(key);
    return new EscapeFilter(key, {
      leave: () => {
        say(`${name}.`);
        leave(new CliError(`disconnected by the escape key; ${leaving}`));
      },
      suspend: () => {
        say(`${name}^Z (suspended; "fg" continues)`);
        raw?.suspend();
      },
      help: () => say("", ...helpLines(name, leaving)),
    });
  };
  const keys = raw && escape !== undefined ? filterFor(escape) : undefined;
  keys?.pipe(process.stdin);
  const target = keys ?? process.stdin;
  const input = sendInput(host, target);
  return {
    left,
    [Symbol.dispose]: () => {
      raw?.[Symbol.dispose]();
      input[Symbol.dispose]();
    },
  };
}

function helpLines(name: string, leaving: string): readonly string[] {
  const keys = [
    [".", `leave; ${leaving}`],
    ["^Z", "suspend guestctl"],
    [name, "send the escape character"],
    ["?", "this list"],
  ];
  return [
    "At the start of a line:",
    ...keys.map(([key = "", meaning = ""]) => `  ${`${name}${key}`.padEnd(6)}${meaning}`),
  ];
}

/** Actions of the keys after the escape character. */
export interface EscapeActions {
  leave(): void;
  suspend(): void;
  help(): void;
}

const CARRIAGE_RETURN = 0x0d;
const LINE_FEED = 0x0a;
const DOT = 0x2e;
const QUESTION_MARK = 0x3f;
const CONTROL_Z = 0x1a;
/** Mask of the lower five bits of a letter. Ctrl with a letter produces the control character that has only these bits. */
const CONTROL_BITS = 0x1f;

/** The escape character of ssh(1). */
const DEFAULT_ESCAPE = "~";

/** The option that names the escape character. */
export const ESCAPE_OPTION = {
  "escape-char": {
    argument: "CHAR",
    help: 'escape character of a terminal, such as ~ (the default), ^] or "none"',
    completes: ["none"],
  },
} as const;

/**
 * Parses an escape character: an ASCII character, a control character such as `^]`, or `none`. Returns its byte;
 * undefined for `none`. Throws UsageError.
 */
export function parseEscapeChar(text: string = DEFAULT_ESCAPE): number | undefined {
  if (text === "none") return undefined;
  const [, control, plain] = /^(?:\^([@-_a-z])|([!-~]))$/.exec(text) ?? [];
  if (control !== undefined) return control.charCodeAt(0) & CONTROL_BITS;
  if (plain !== undefined) return plain.charCodeAt(0);
  throw new UsageError('--escape-char requires a character such as ~, a control character such as ^], or "none"');
}

/** An escape character in readable form. */
export function escapeCharName(byte: number): string {
  return byte > CONTROL_BITS ? String.fromCharCode(byte) : `^${String.fromCharCode(byte + 0x40)}`;
}

/**
 * Passes keys through, except for the escape character at the start of a line. As in ssh(1), guestctl interprets that
 * character and the next key. If the next key has no action, both are passed through. A doubled escape character is
 * passed through once.
 */
export class EscapeFilter extends Transform {
  readonly #escape: number;
  readonly #actions: EscapeActions;
  #isAtLineStart = true;
  #isEscaped = false;
  #hasLeft = false;

  constructor(escape: number, actions: EscapeActions) {
    super();
    this.#escape = escape;
    this.#actions = actions;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: (error: null, passed: Buffer) => void): void {
    const passed: number[] = [];
    for (const key of chunk) if (!this.#hasLeft) passed.push(...this.#pass(key));
    done(null, Buffer.from(passed));
  }

  override _flush(done: (error: null, passed?: Buffer) => void): void {
    done(null, Buffer.from(this.#isEscaped ? [this.#escape] : []));
  }

  #pass(key: number): readonly number[] {
    if (this.#isEscaped) {
      this.#isEscaped = false;
      if (this.#act(key)) return [];
      this.#isAtLineStart = key !== this.#escape && isLineEnd(key);
      return key === this.#escape ? [key] : [this.#escape, key];
    }
    if (this.#isAtLineStart && key === this.#escape) {
      this.#isEscaped = true;
      return [];
    }
    this.#isAtLineStart = isLineEnd(key);
    return [key];
  }

  /** Runs the action of the key that followed the escape character. Returns false if the key has no action. */
  #act(key: number): boolean {
    if (key === this.#escape) return false;
    if (key === DOT) {
      this.#hasLeft = true;
      this.#actions.leave();
    } else if (key === CONTROL_Z) this.#actions.suspend();
    else if (key === QUESTION_MARK) this.#actions.help();
    else return false;
    return true;
  }
}

function isLineEnd(key: number): boolean {
  return key === CARRIAGE_RETURN || key === LINE_FEED;
}
