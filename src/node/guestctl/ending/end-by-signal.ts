import { constants as fileConstants, readFileSync } from "node:fs";
import { constants } from "node:os";

/** Standard streams by file descriptor. */
const STREAMS = ["stdin", "stdout", "stderr"] as const;

/** libuv's side of a stream, which Node does not declare. */
interface WithHandle {
  readonly _handle?: { setBlocking?(isBlocking: boolean): number } | null;
}

/**
 * Which standard streams were blocking when guestctl started. O_NONBLOCK belongs to the open file, which the other
 * programs of a pipeline share (fcntl(2)); Node sets it, and resets it at exit, but not where a signal ends the
 * process. Call this before anything uses the streams. Where /proc is missing, all count as blocking.
 */
function blockingStreams(): readonly (typeof STREAMS)[number][] {
  return STREAMS.filter((_name, fd) => {
    try {
      const [, flags = "0"] = /^flags:\s*(\d+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1")) ?? [];
      return (Number.parseInt(flags, 8) & fileConstants.O_NONBLOCK) === 0;
    } catch {
      return true;
    }
  });
}

const WERE_BLOCKING = blockingStreams();

/**
 * Makes guestctl end by a signal once it exits, as a process does that handles none: the shell around it then knows
 * that Ctrl-C was pressed, and ends its loop (bash(1), SIGNALS). Listeners of "exit" run first. Returns the exit status
 * to exit with.
 */
export function endBySignal(host: NodeJS.Process, signal: NodeJS.Signals): number {
  host.once("exit", () => {
    for (const name of WERE_BLOCKING) if (!host[name].isTTY) (host[name] as WithHandle)._handle?.setBlocking?.(true);
    host.removeAllListeners(signal);
    host.kill(host.pid, signal);
  });
  return 128 + constants.signals[signal];
}
