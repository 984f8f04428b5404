import type { ExecProcess } from "../../client/index.ts";
import { CliError } from "../errors.ts";
import { enterRawMode, type RawMode } from "../terminal/index.ts";
import { escapeCharName, EscapeFilter } from "./escape.ts";

/** The local keyboard at a command, until it is disposed of. */
export interface Keyboard extends Disposable {
  /** Rejects with CliError when the user leaves by the escape character; never resolves. */
  readonly left: Promise<never>;
}

/**
 * Joins the local standard input to a command: a local terminal raw and with the escape character where the command runs
 * in a terminal as well, anything else as it is.
 */
export function openKeyboard(
  process: ExecProcess,
  isTerminal: boolean,
  escape: number | undefined,
  host: NodeJS.Process,
): Keyboard {
  const raw = isTerminal && host.stdin.isTTY ? enterRawMode(host, { keepsOutput: true }) : undefined;
  const leaving = new AbortController();
  const keys = raw && escape !== undefined ? escapeFilter(escape, raw, () => leaving.abort(), host) : undefined;
  keys?.pipe(process.stdin);
  const target = keys ?? process.stdin;
  host.stdin.pipe(target);
  return {
    left: leftAt(leaving.signal),
    [Symbol.dispose]: () => {
      raw?.[Symbol.dispose]();
      host.stdin.unpipe(target);
      host.stdin.pause();
    },
  };
}

function escapeFilter(escape: number, raw: RawMode, leave: () => void, host: NodeJS.Process): EscapeFilter {
  const name = escapeCharName(escape);
  const say = (...lines: readonly string[]): void =>
    void host.stderr.write(lines.map((line) => `${line}\r\n`).join(""));
  return new EscapeFilter(escape, {
    leave: () => {
      say(`${name}.`);
      leave();
    },
    suspend: () => {
      say(`${name}^Z (suspended; "fg" goes on)`);
      raw.suspend();
    },
    help: () => say("", ...helpLines(name)),
  });
}

function leftAt(signal: AbortSignal): Promise<never> {
  const left = new Promise<never>((_resolve, reject) => {
    const leave = (): void => reject(new CliError("left by the escape key; the agent hangs up on the command"));
    signal.addEventListener("abort", leave, { once: true });
  });
  // Nobody may be waiting any more.
  left.catch(() => undefined);
  return left;
}

function helpLines(name: string): readonly string[] {
  const keys = [
    [".", "leave; the agent hangs up on the command"],
    ["^Z", "suspend guestctl"],
    [name, "send the escape character"],
    ["?", "this list"],
  ];
  return [
    "At the start of a line:",
    ...keys.map(([key = "", meaning = ""]) => `  ${`${name}${key}`.padEnd(6)}${meaning}`),
  ];
}
