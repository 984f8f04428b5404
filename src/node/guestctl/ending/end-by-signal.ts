import { constants as fileConstants, readFileSync } from "node:fs";
import { constants } from "node:os";

/** Standard streams by file descriptor. */
const STREAMS = ["stdin", "stdout", "stderr"] as const;

/** libuv's handle of a stream, which Node's types do not declare. */
interface WithHandle {
  readonly _handle?: { setBlocking?(isBlocking: boolean): number } | null;
}

/**
 * Finds which standard streams were blocking when guestctl started, so that guestctl can restore this when a signal
 * ends it. Node sets O_NONBLOCK on the streams, and clears the flag only at a normal exit. The flag would otherwise
 * remain set for the other programs of a pipeline, which share the open file description (fcntl(2)).
 *
 * Must be called before anything uses the streams. Without /proc, all streams count as blocking.
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
 * Makes a standard stream blocking again if it was blocking when guestctl started. Other programs may share the stream,
 * and may not expect O_NONBLOCK. From then on, writes of guestctl may block.
 */
export function letStreamsBlock(host: NodeJS.Process, names: readonly (typeof STREAMS)[number][]): void {
  for (const name of names)
    if (WERE_BLOCKING.includes(name) && !host[name].isTTY) (host[name] as WithHandle)._handle?.setBlocking?.(true);
}

/**
 * Makes guestctl terminate by a signal when it exits, as a process without a handler would. The calling shell then
 * knows that Ctrl-C was pressed, and ends the loop in which it called guestctl (bash(1), SIGNALS). Listeners of "exit"
 * run first. Returns the exit status to exit with.
 */
export function endBySignal(host: NodeJS.Process, signal: NodeJS.Signals): number {
  host.once("exit", () => {
    letStreamsBlock(host, STREAMS);
    host.removeAllListeners(signal);
    host.kill(host.pid, signal);
  });
  return 128 + constants.signals[signal];
}
