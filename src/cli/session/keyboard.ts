import type { ExecProcess } from "../../client/index.ts";
import { CliError } from "../errors.ts";
import { enterRawMode } from "../terminal/index.ts";
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
  return isTerminal && host.stdin.isTTY ? rawInput(process, escape, host) : plainInput(process, host);
}

function rawInput(process: ExecProcess, escape: number | undefined, host: NodeJS.Process): Keyboard {
  const raw = enterRawMode(host, { keepsOutput: true });
  const { promise, leave } = leaving();
  const say = (lines: readonly string[]): void => void host.stderr.write(lines.map((line) => `${line}\r\n`).join(""));
  const keys = escape === undefined ? undefined : filter(escape);
  function filter(byte: number): EscapeFilter {
    const name = escapeCharName(byte);
    return new EscapeFilter(byte, {
      leave: () => {
        say([`${name}.`]);
        leave();
      },
      suspend: () => {
        say([`${name}^Z (suspended; "fg" goes on)`]);
        raw.suspend();
      },
      help: () => say(["", ...helpLines(name)]),
    });
  }
  keys?.pipe(process.stdin);
  const target = keys ?? process.stdin;
  host.stdin.pipe(target);
  return {
    left: promise,
    [Symbol.dispose]: () => {
      raw[Symbol.dispose]();
      host.stdin.unpipe(target);
      host.stdin.pause();
    },
  };
}

function plainInput(process: ExecProcess, host: NodeJS.Process): Keyboard {
  host.stdin.pipe(process.stdin);
  return {
    left: leaving().promise,
    [Symbol.dispose]: () => {
      host.stdin.unpipe(process.stdin);
      host.stdin.pause();
    },
  };
}

function leaving(): { readonly promise: Promise<never>; readonly leave: () => void } {
  let leave = (): void => undefined;
  const promise = new Promise<never>((_resolve, reject) => {
    leave = () => reject(new CliError("left by the escape key; the agent hangs up on the command"));
  });
  // Nobody may be waiting any more.
  promise.catch(() => undefined);
  return { promise, leave: () => leave() };
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
