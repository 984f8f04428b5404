import { spawnSync } from "node:child_process";
import { openSync } from "node:fs";
import { WriteStream } from "node:tty";
import type { ExecCommand, ExecProcess } from "../../client/index.ts";

/** `-tt`, as with ssh(1). */
export const FORCED = 2;

/** The terminal for a command: like the local one, if there is one. */
export function terminalOf(host: NodeJS.Process): NonNullable<ExecCommand["terminal"]> {
  return { cols: 0, rows: 0, ...localSize(host), term: host.env["TERM"], iutf8: isUtf8(host) };
}

/** Whether the local terminal edits lines as UTF-8; without one, or without stty(1), whether the locale is UTF-8. */
function isUtf8(host: NodeJS.Process): boolean {
  const modes = host.stdin.isTTY ? spawnSync("stty", ["-a"], { stdio: ["inherit", "pipe", "ignore"] }).stdout : null;
  const [, minus] = /(?:^|\s)(-?)iutf8\b/.exec(String(modes ?? "")) ?? [];
  if (minus !== undefined) return minus === "";
  const locale = [host.env["LC_ALL"], host.env["LC_CTYPE"], host.env["LANG"]].find((each) => (each ?? "") !== "");
  return /utf-?8/i.test(locale ?? "");
}

/** A size in characters. */
interface Size {
  readonly cols: number;
  readonly rows: number;
}

/** The size of the local terminal; undefined where there is none that has one. */
export function localSize(host: NodeJS.Process): Size | undefined {
  const output = outputTerminal(host);
  const size = output === undefined ? inputSize(host) : { cols: output.columns, rows: output.rows };
  return size !== undefined && size.cols > 0 && size.rows > 0 ? size : undefined;
}

/** Makes a command's terminal follow the size of the local one until disposed of. */
export function followSize(process: ExecProcess, host: NodeJS.Process): Disposable {
  const output = outputTerminal(host);
  const follow = (): void => {
    const size = localSize(host);
    if (size !== undefined) process.resize(size.cols, size.rows);
  };
  // A stopped guestctl gets no SIGWINCH, and Node reads the size only then.
  const look = (): boolean => host.kill(host.pid, "SIGWINCH");
  // Node emits "resize" only for terminals of outputs.
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

/** Handles these signals until disposed of. */
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

/** The size of a terminal that only standard input has, as in `x=$(guestctl exec -it … 2>errors)`. */
function inputSize(host: NodeJS.Process): Size | undefined {
  if (!host.stdin.isTTY) return undefined;
  try {
    // Opened again: the stream closes its descriptor.
    const terminal = new WriteStream(openSync(`/dev/fd/${host.stdin.fd}`, "r+"));
    const { columns: cols, rows } = terminal;
    terminal.destroy();
    return { cols, rows };
  } catch {
    return undefined; // after su(1) the device may belong to another user
  }
}

/** Time for a stop signal to arrive. The kernel ignores it in an orphaned process group; then nothing must change. */
const STOP_MS = 100;

/** A local terminal in raw mode, until it is disposed of. */
export interface RawMode extends Disposable {
  /** Restores the terminal and stops guestctl, as Ctrl-Z does elsewhere. guestctl resumes when it is continued. */
  suspend(): void;
}

/**
 * Makes standard input, which is a terminal, raw: every key arrives at once and none is a signal. The terminal is
 * restored on every way out, crashes and process.exit() included; only SIGKILL leaves it raw.
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
  // Another program had the terminal while guestctl was stopped.
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
      // The whole group, as the terminal would: the shell waits for all of a pipeline.
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

/** Raw mode of Node turns line feeds into line breaks, which garbles full-screen programs; stty(1) can undo that. */
function keepOutput(): void {
  spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
}
