import { spawnSync } from "node:child_process";
import type { WriteStream } from "node:tty";
import type { ExecCommand, ExecProcess } from "../../client/index.ts";

/** The terminal that a command should run in: one like the local one, where there is one. */
export function terminalOf(host: NodeJS.Process): NonNullable<ExecCommand["terminal"]> {
  const local = localTerminal(host);
  return { cols: local?.columns ?? 0, rows: local?.rows ?? 0, term: host.env["TERM"] };
}

/**
 * Joins the local terminal to that of a command until disposed of: its size is followed, and with `isInteractive` every
 * key goes to the command unchanged. The terminal is restored on every way out, crashes and signals included.
 */
export function openRawTerminal(process: ExecProcess, isInteractive: boolean, host: NodeJS.Process): Disposable {
  const local = localTerminal(host);
  const follow = (): void => {
    if (local !== undefined && local.columns > 0 && local.rows > 0) process.resize(local.columns, local.rows);
  };
  const isRaw = isInteractive && host.stdin.isTTY;
  const restore = (): void => {
    if (isRaw) host.stdin.setRawMode(false);
  };
  // Whoever continues a stopped guestctl has had the terminal in between.
  const renew = (): void => {
    restore();
    if (isRaw) makeRaw(host);
    follow();
  };
  if (isRaw) makeRaw(host);
  local?.on("resize", follow);
  host.on("SIGCONT", renew);
  host.on("exit", restore);
  return {
    [Symbol.dispose]: () => {
      restore();
      local?.off("resize", follow);
      host.off("SIGCONT", renew);
      host.off("exit", restore);
    },
  };
}

/**
 * Node's raw mode still turns line feeds into line breaks on output, which garbles full-screen programs. stty(1) can
 * switch that off; where it is missing, most things work all the same. Leaving raw mode undoes both.
 */
function makeRaw(host: NodeJS.Process): void {
  host.stdin.setRawMode(true);
  spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
}

function localTerminal(host: NodeJS.Process): WriteStream | undefined {
  return [host.stdout, host.stderr].find((stream) => stream.isTTY);
}
