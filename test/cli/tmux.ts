import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { execa } from "execa";

/** Time for something to appear on the screen. */
const PATIENCE_MS = 300_000;
/** Between two looks at the screen: tmux tells nobody when it changes. */
const LOOK_MS = 50;

/** Skips the test where there is no tmux. */
export function isWithoutTmux(t: TestContext): boolean {
  const isThere = spawnSync("tmux", ["-V"]).status === 0;
  if (!isThere) t.skip("needs tmux (Debian: tmux)");
  return !isThere;
}

/** What a terminal is started with. */
export interface TmuxOptions {
  readonly cols: number;
  readonly rows: number;
  readonly env: Readonly<Record<string, string>>;
  /** Default: a POSIX shell whose prompt is `$ `. */
  readonly command?: readonly string[];
}

/** A screen as a person sees it: a window of a tmux server of its own, which ends with it. */
export class TmuxTerminal implements AsyncDisposable {
  readonly #folder: string;
  readonly #env: Readonly<Record<string, string>>;

  private constructor(folder: string, env: Readonly<Record<string, string>>) {
    this.#folder = folder;
    this.#env = env;
  }

  static async start({ cols, rows, env, command = ["sh"] }: TmuxOptions): Promise<TmuxTerminal> {
    const folder = await mkdtemp(join(tmpdir(), "tmux-"));
    const terminal = new TmuxTerminal(folder, { ...env, LANG: "C.UTF-8", TERM: "xterm-256color", PS1: "$ ", ENV: "" });
    const size = ["-x", String(cols), "-y", String(rows)];
    try {
      await terminal.#tmux(["-f", "/dev/null", "new-session", "-d", ...size, ...command]);
      await terminal.#tmux(["set-option", "-g", "window-size", "manual"]);
      return terminal;
    } catch (error) {
      await terminal[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Types text, Enter where it has a line feed. */
  async type(text: string): Promise<void> {
    const [first = "", ...rest] = text.split("\n");
    if (first !== "") await this.#tmux(["send-keys", "-l", "--", first]);
    for (const line of rest) {
      await this.key("Enter");
      if (line !== "") await this.#tmux(["send-keys", "-l", "--", line]);
    }
  }

  /** Presses a key by tmux's name for it, such as `C-z`. */
  async key(name: string): Promise<void> {
    await this.#tmux(["send-keys", name]);
  }

  /** Pastes text, at once and unchanged. */
  async paste(text: string): Promise<void> {
    const server = ["-S", join(this.#folder, "socket")];
    await execa("tmux", [...server, "load-buffer", "-"], { env: this.#env, extendEnv: false, input: text });
    await this.#tmux(["paste-buffer", "-r"]);
  }

  /** Empties the screen, whoever has it. */
  async clear(): Promise<void> {
    await this.#tmux(["send-keys", "-R"]);
  }

  async resize(cols: number, rows: number): Promise<void> {
    await this.#tmux(["resize-window", "-x", String(cols), "-y", String(rows)]);
  }

  /** The lines that are to be seen, wrapped ones joined, without blanks at their ends. */
  async screen(): Promise<string> {
    return (await this.#tmux(["capture-pane", "-p", "-J"])).replaceAll(/ +$/gm, "");
  }

  /** What tmux knows of the terminal, by its format: `#{cursor_flag}`, `#{alternate_on}`. */
  async state(format: string): Promise<string> {
    return this.#tmux(["display-message", "-p", format]);
  }

  /** Waits until the screen matches, and gives the groups. */
  async expect(pattern: RegExp): Promise<readonly string[]> {
    const deadlineMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const screen = await this.screen();
      const match = pattern.exec(screen);
      if (match !== null) return match.slice(1);
      if (performance.now() > deadlineMs) assert.fail(`${String(pattern)} did not come:\n${screen}`);
      await new Promise((resolve) => {
        setTimeout(resolve, LOOK_MS);
      });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tmux(["kill-server"]).catch(() => undefined);
    await rm(this.#folder, { recursive: true });
  }

  async #tmux(args: readonly string[]): Promise<string> {
    const server = ["-S", join(this.#folder, "socket")];
    const { stdout } = await execa("tmux", [...server, ...args], { env: this.#env, extendEnv: false });
    return stdout;
  }
}
