import { spawnSync } from "node:child_process";
import { openSync } from "node:fs";
import { WriteStream } from "node:tty";
import type { GuestProcess, TerminalOptions } from "../../client/index.ts";

/** How many -t options (`-tt`) force a terminal, as in ssh(1). */
export const FORCED = 2;

/** The terminal for a command. It has the properties of the local terminal, if there is one. */
export function terminalOf(host: NodeJS.Process): TerminalOptions {
  return { cols: 0, rows: 0, ...localSize(host), term: host.env["TERM"], iutf8: isUtf8(host) };
}

/** Whether the local terminal edits lines as UTF-8. Without a terminal or stty(1), the locale decides. */
function isUtf8(host: NodeJS.Process): boolean {
  const modes = host.stdin.isTTY ? spawnSync("stty", ["-a"], { stdio: ["inherit", "pipe", "ignore"] }).stdout : null;
  const [, minus] = /(?:^|\s)(-?)iutf8\b/.exec(String(modes ?? "")) ?? [];
  if (minus !== undefined) return minus === "";
  const locale = [host.env["LC_ALL"], host.env["LC_CTYPE"], host.env["LANG"]].find((each) => (each ?? "") !== "");
  return /utf-?8/i.test(locale ?? "");
}

/** The size of a terminal, in characters. */
interface Size {
  readonly cols: number;
  readonly rows: number;
}

/** The size of the local terminal; undefined if there is no terminal or its size is not known. */
export function localSize(host: NodeJS.Process): Size | undefined {
  const output = outputTerminal(host);
  const size = output === undefined ? inputSize(host) : { cols: output.columns, rows: output.rows };
  return size !== undefined && size.cols > 0 && size.rows > 0 ? size : undefined;
}

/** Resizes a command's terminal whenever the local terminal is resized, until the returned object is disposed of. */
export function followSize(process: Pick<GuestProcess, "resize">, host: NodeJS.Process): Disposable {
  const output = outputTerminal(host);
  const follow = (): void => {
    const size = localSize(host);
    if (size !== undefined) process.resize(size.cols, size.rows);
  };
  // A stopped process receives no SIGWINCH, and Node reads the size only at SIGWINCH. So send one when guestctl is
  // continued.
  const look = (): boolean => host.kill(host.pid, "SIGWINCH");
  // Node emits "resize" only for output terminals.
  if (output === undefined && host.stdin.isTTY) host.on("SIGWINCH", follow);
  output?.on("resize", follow);
  host.on("SIGCONT", look);
  return {
    [Symbol.dispose]: () => {
      host.off("SIGWINCH", follow);
      output?.off("resize", follow);
      host.off("SIGCONT", look);
    },
  };
}

/** Handles the given signals until disposed of. */
export function handleSignals(
  host: NodeJS.Process,
  signals: readonly NodeJS.Signals[],
  handle: (signal: NodeJS.Signals) => void,
): Disposable {
  for (const signal of signals) host.on(signal, handle);
  return {
    [Symbol.dispose]: () => {
      for (const signal of signals) host.off(signal, handle);
    },
  };
}

function outputTerminal(host: NodeJS.Process): WriteStream | undefined {
  return [host.stdout, host.stderr].find((stream) => stream.isTTY);
}

/**
 * Returns the size of the terminal on standard input. Used if standard output and standard error are not terminals, as
 * in `x=$(guestctl exec -it … 2>errors)`.
 */
function inputSize(host: NodeJS.Process): Size | undefined {
  if (!host.stdin.isTTY) return undefined;
  try {
    // Open the terminal a second time: `destroy` below also closes the stream's file descriptor, and standard input
    // must stay open.
    const terminal = new WriteStream(openSync(`/dev/fd/${host.stdin.fd}`, "r+"));
    const { columns: cols, rows } = terminal;
    terminal.destroy();
    return { cols, rows };
  } catch {
    return undefined; // after su(1) the device may belong to another user
  }
}

/**
 * How long guestctl waits until SIGTSTP stops it. After this time, guestctl enters raw mode again: the kernel ignores
 * SIGTSTP in an orphaned process group, so guestctl was not stopped.
 */
const STOP_MS = 100;

/** A local terminal that remains in raw mode until this object is disposed of. */
export interface RawMode extends Disposable {
  /**
   * Restores the terminal and stops guestctl, as Ctrl-Z does for other programs. When guestctl is continued, the
   * terminal becomes raw again.
   */
  suspend(): void;
}

/**
 * Puts the terminal on standard input into raw mode: every key is delivered at once, and none generates a signal. The
 * terminal is restored however guestctl ends, including crashes and process.exit(); only SIGKILL leaves it raw.
 */
export function enterRawMode(host: NodeJS.Process): RawMode {
  let stopping: NodeJS.Timeout | undefined;
  let isEntered = false;
  const enter = (): void => {
    isEntered = true;
    host.stdin.setRawMode(true);
    keepOutput();
  };
  const leave = (): void => {
    clearTimeout(stopping);
    if (!isEntered) return;
    isEntered = false;
    host.stdin.setRawMode(false);
  };
  // Enter raw mode again, because other programs used the terminal while guestctl was stopped.
  const renew = (): void => {
    leave();
    enter();
  };
  enter();
  host.on("SIGCONT", renew);
  host.on("exit", leave);
  return {
    suspend: () => {
      leave();
      // Stop the whole process group, as the terminal would, because the shell waits for all processes of a pipeline.
      host.kill(0, "SIGTSTP");
      stopping = setTimeout(renew, STOP_MS);
    },
    [Symbol.dispose]: () => {
      host.off("SIGCONT", renew);
      host.off("exit", leave);
      leave();
    },
  };
}

/**
 * Disables output processing with stty(1). Node's raw mode leaves it on, so line feeds become CR LF, which garbles
 * full-screen programs.
 */
function keepOutput(): void {
  spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
}
