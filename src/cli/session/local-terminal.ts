import type { WriteStream } from "node:tty";
import type { ExecCommand, ExecProcess } from "../../client/index.ts";

/** The terminal that a command should run in: one like the local one, where there is one. */
export function terminalOf(host: NodeJS.Process): NonNullable<ExecCommand["terminal"]> {
  const local = localTerminal(host);
  return { cols: local?.columns ?? 0, rows: local?.rows ?? 0, term: host.env["TERM"] };
}

/** Has the terminal of a command follow the size of the local one until disposed of. */
export function followSize(process: ExecProcess, host: NodeJS.Process): Disposable {
  const local = localTerminal(host);
  const follow = (): void => {
    if (local !== undefined && local.columns > 0 && local.rows > 0) process.resize(local.columns, local.rows);
  };
  // A stopped guestctl is not told of new sizes, and Node only looks when it is told.
  const look = (): boolean => host.kill(host.pid, "SIGWINCH");
  local?.on("resize", follow);
  host.on("SIGCONT", look);
  return {
    [Symbol.dispose]: () => {
      local?.off("resize", follow);
      host.off("SIGCONT", look);
    },
  };
}

function localTerminal(host: NodeJS.Process): WriteStream | undefined {
  return [host.stdout, host.stderr].find((stream) => stream.isTTY);
}
