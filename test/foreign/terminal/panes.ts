import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { execa } from "execa";
import type { Guest } from "../rsh/guest.ts";

/** An emergency brake, for both screens to become the same. */
const PATIENCE_MS = 180_000;
const LOOK_AGAIN_MS = 100;
/** A pane stays when its program has ended. A key is a key at once. */
const SETTINGS = ["-g status off", "-g remain-on-exit on", "-s escape-time 0"];
/** Not by tmux: 3.3a sometimes misses a program's end, and keeps a zombie. */
const TELLS_STATUS = '"$@"; printf %s $? >"$0.new"; mv "$0.new" "$0"';
const SIDES = ["here", "sandbox"] as const;
type Side = (typeof SIDES)[number];

/** What is typed, and what the screen then shows. */
export interface Step {
  /** Text, sent as it is. */
  readonly type?: string;
  /** Names of tmux's keys, after the text. */
  readonly keys?: readonly string[];
  /** New size of the terminal. */
  readonly resize?: readonly [cols: number, rows: number];
  /** On the screen once the program has finished that, and not before. */
  readonly shows: RegExp;
}

/** Two terminals of tmux, with the same program and the same typed into both: here, and through `guestctl exec -it`. */
export class Panes implements AsyncDisposable {
  readonly #socket: string;
  readonly #guest: Guest;

  private constructor(guest: Guest) {
    this.#guest = guest;
    // A socket of its own: a server that is ending keeps its socket for a moment.
    this.#socket = join(guest.folder, `tmux-${randomBytes(4).toString("hex")}`);
  }

  /** @param through what stands before the program's words in the sandbox */
  static async open(guest: Guest, through: readonly string[], words: readonly string[]): Promise<Panes> {
    const panes = new Panes(guest);
    await writeFile(panes.#configuration, SETTINGS.map((setting) => `set ${setting}\n`).join(""));
    const env = Object.entries(guest.env).map(([name, value]) => `${name}=${value}`);
    const place = ["-x", "80", "-y", "24", "-c", guest.folder];
    for (const side of SIDES) {
      const command = side === "here" ? words : [...through, ...words];
      const told = ["sh", "-c", TELLS_STATUS, panes.#statusFile(side), ...command];
      await panes.#tmux("new-session", "-d", ...place, "-s", side, "env", ...env, ...told);
    }
    return panes;
  }

  /**
   * Types into both, and waits until both show it and the same. `alike` leaves out what may differ. @throws Error with
   * both screens
   */
  async step(step: Step, alike: (screen: string) => string = (screen) => screen): Promise<void> {
    await Promise.all(SIDES.map((side) => this.#send(side, step)));
    const read = (): Promise<[string, string]> => this.#both((side) => this.#screen(side));
    const [here, sandbox] = await until(
      read,
      ([one, other]) => step.shows.test(one) && step.shows.test(other) && alike(one) === alike(other),
    );
    const isReached = step.shows.test(here) && alike(here) === alike(sandbox);
    if (isReached) return;
    const typed = step.type ?? step.keys?.join(" ") ?? "the size";
    throw new Error(
      `after ${typed}: not the same, or not ${step.shows.source}\n--- here\n${here}\n--- in the sandbox\n${sandbox}`,
    );
  }

  /** Types what ends both programs, and waits until they have ended. Their statuses. */
  async ended(typed: Omit<Step, "shows">): Promise<[string, string]> {
    await Promise.all(SIDES.map((side) => this.#send(side, typed)));
    const status = (side: Side): Promise<string> => readFile(this.#statusFile(side), "utf8").catch(() => "");
    const ends = await until(
      () => this.#both(status),
      (both) => both.every((each) => each !== ""),
    );
    if (ends.every((each) => each !== "")) return ends;
    throw new Error(`a program has not ended:\n${(await this.#both((side) => this.#screen(side))).join("\n---\n")}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tmux("kill-server");
  }

  get #configuration(): string {
    return `${this.#socket}.conf`;
  }

  #statusFile(side: Side): string {
    return `${this.#socket}.${side}`;
  }

  async #both<Value>(of: (side: Side) => Promise<Value>): Promise<[Value, Value]> {
    return Promise.all([of("here"), of("sandbox")]);
  }

  async #send(side: Side, { type, keys, resize }: Omit<Step, "shows">): Promise<void> {
    if (resize !== undefined)
      await this.#tmux("resize-window", "-t", side, "-x", String(resize[0]), "-y", String(resize[1]));
    if (type !== undefined) await this.#tmux("send-keys", "-t", side, "-l", type);
    if (keys !== undefined) await this.#tmux("send-keys", "-t", side, ...keys);
  }

  #screen(side: Side): Promise<string> {
    return this.#tmux("capture-pane", "-p", "-t", side);
  }

  async #tmux(...args: readonly string[]): Promise<string> {
    const env = { PATH: this.#guest.env["PATH"] ?? "", LANG: "C.UTF-8", HOME: this.#guest.folder, SHELL: "/bin/sh" };
    const { stdout } = await execa("tmux", ["-u", "-S", this.#socket, "-f", this.#configuration, ...args], {
      env,
      extendEnv: false,
      stripFinalNewline: false,
    });
    return stdout;
  }
}

/** Reads again and again until it is right; the last one, if it never is. */
async function until<Value>(read: () => Promise<Value>, isRight: (value: Value) => boolean): Promise<Value> {
  const last = performance.now() + PATIENCE_MS;
  for (;;) {
    const value = await read();
    if (isRight(value) || performance.now() > last) return value;
    await delay(LOOK_AGAIN_MS);
  }
}
