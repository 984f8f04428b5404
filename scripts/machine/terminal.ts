import xterm from "@xterm/headless";
import { type IPty, spawn } from "node-pty";

/** Longest time to wait for output. */
const PATIENCE_MS = 300_000;
/** How long the program may take to end after its terminal was closed. After that it is killed. */
const HANG_UP_MS = 5000;

const KEYS: Readonly<Record<string, string>> = { Enter: "\r", Tab: "\t" };

/** Options of a terminal. */
export interface TerminalOptions {
  /** The program that runs in the terminal, and its arguments. */
  readonly command: readonly [file: string, ...args: string[]];
  readonly cols: number;
  readonly rows: number;
  /**
   * Environment variables of the program. By default TERM is xterm-256color, LANG is C.UTF-8, and the shell's prompt is
   * `$ `.
   */
  readonly env: Readonly<Record<string, string>>;
}

/**
 * A terminal as a person has it: node-pty creates it and xterm.js draws its screen, without any code of the agent.
 * Every wait fails if the program ends, or after five minutes without output.
 */
export class Terminal implements AsyncDisposable {
  readonly #pty: IPty;
  readonly #screen: xterm.Terminal;
  readonly #ended: Promise<number>;
  #output = "";
  #hasEnded = false;
  #changed = Promise.withResolvers<undefined>();

  constructor({ command: [file, ...args], cols, rows, env }: TerminalOptions) {
    this.#screen = new xterm.Terminal({ cols, rows, allowProposedApi: true });
    const variables = { LANG: "C.UTF-8", PS1: "$ ", ENV: "", ...env };
    this.#pty = spawn(file, args, { name: "xterm-256color", cols, rows, env: variables });
    this.#pty.onData((text) => {
      this.#output += text;
      this.#screen.write(text, () => this.#tell());
    });
    // Sends the terminal's answers to the program's queries.
    this.#screen.onData((text) => this.#pty.write(text));
    const ended = Promise.withResolvers<number>();
    this.#ended = ended.promise;
    this.#pty.onExit(({ exitCode }) => {
      ended.resolve(exitCode);
      this.#screen.write("", () => {
        this.#hasEnded = true;
        this.#tell();
      });
    });
  }

  /** Process id of the program. */
  get pid(): number {
    return this.#pty.pid;
  }

  /** Types text; each line feed is typed as Enter. */
  type(text: string): void {
    this.#pty.write(text.replaceAll("\n", "\r"));
  }

  /** Presses Enter, Tab, or a key with Ctrl, such as `C-z`. */
  key(name: string): void {
    const [, letter] = /^C-(.)$/.exec(name) ?? [];
    const key = letter === undefined ? KEYS[name] : String.fromCharCode(letter.toUpperCase().charCodeAt(0) - 0x40);
    if (key === undefined) throw new Error(`there is no key ${name}`);
    this.#pty.write(key);
  }

  /** Pastes text all at once and unchanged. */
  paste(text: string): void {
    this.#pty.write(text);
  }

  /** Clears the screen except for the cursor's line, so that the shell's prompt remains. */
  clear(): void {
    this.#screen.clear();
  }

  resize(cols: number, rows: number): void {
    this.#screen.resize(cols, rows);
    this.#pty.resize(cols, rows);
  }

  /** The visible lines without trailing blanks. Wrapped lines are joined. */
  screen(): string {
    const { active } = this.#screen.buffer;
    const text = Array.from({ length: this.#screen.rows }, (_, row) => {
      const line = active.getLine(active.viewportY + row);
      return `${row > 0 && line?.isWrapped === true ? "" : "\n"}${line?.translateToString() ?? ""}`;
    });
    return text.join("").slice(1).replaceAll(/ +$/gm, "").trimEnd();
  }

  /** Waits until the screen matches, and returns the groups of the match. */
  async expect(pattern: RegExp): Promise<readonly string[]> {
    return this.#until(pattern, () => pattern.exec(this.screen())?.slice(1));
  }

  /** Waits until the output matches. Removes the output up to the end of the match, and returns the groups. */
  async read(pattern: RegExp): Promise<readonly string[]> {
    return this.#until(pattern, () => {
      const match = pattern.exec(this.#output);
      if (match !== null) this.#output = this.#output.slice(match.index + match[0].length);
      return match?.slice(1);
    });
  }

  /** Resolves with the program's exit code. */
  ended(): Promise<number> {
    return this.#ended;
  }

  /** Closes the terminal and waits for the program to end. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#pty.kill("SIGHUP");
    const timer = setTimeout(() => this.#pty.kill("SIGKILL"), HANG_UP_MS);
    await this.#ended;
    clearTimeout(timer);
    this.#screen.dispose();
  }

  #tell(): void {
    this.#changed.resolve(undefined);
    this.#changed = Promise.withResolvers();
  }

  async #until<T>(pattern: RegExp, look: () => T | undefined): Promise<T> {
    const patience = Promise.withResolvers<string>();
    const timer = setTimeout(() => patience.resolve("it did not come"), PATIENCE_MS);
    try {
      for (;;) {
        const { promise } = this.#changed;
        const found = look();
        if (found !== undefined) return found;
        const problem = this.#hasEnded ? "the program has ended" : await Promise.race([promise, patience.promise]);
        if (problem !== undefined) throw new Error(`${String(pattern)}: ${problem}:\n${this.screen()}`);
      }
    } finally {
      clearTimeout(timer);
    }
  }
}
