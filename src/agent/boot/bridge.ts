import { BOOTSTRAP_VARIABLES } from "../config/index.ts";
import type { Addon } from "../native/index.ts";
import { LauncherChannel, takeInheritance } from "../platform/index.ts";
import { reservedTransport } from "../../shared/transports.ts";

const SOCKET_VARIABLE = "SVC_GUEST_SOCKET=";
/** sysexits(3). */
const STATUS_USAGE = 64;
/** SIGHUP, SIGINT, SIGQUIT, SIGTERM. */
const LEAVE_SIGNALS: ReadonlySet<number> = new Set([1, 2, 3, 15]);

/**
 * Joins standard input and output to an agent's management socket: `path`, else SVC_GUEST_SOCKET, which the launcher
 * may have taken out of the environment. Resolves with the exit status; reports failures to `complain`.
 */
export async function bootBridge(
  addon: Addon,
  path: string | undefined,
  complain: (line: string) => void,
): Promise<number> {
  const { entries, channelFd } = takeInheritance(addon, process.env, BOOTSTRAP_VARIABLES);
  const launcher = channelFd === undefined ? undefined : new LauncherChannel(addon, channelFd);
  // The launcher forwards signals only over its channel. Without a launcher they have their default effect.
  launcher?.listen((signal) => {
    if (!LEAVE_SIGNALS.has(signal)) return;
    launcher.announceExit();
    addon.exitNow(128 + signal);
  });
  const status = await run(addon, path ?? socketOf(entries), complain);
  launcher?.announceExit();
  return status;
}

async function run(addon: Addon, path: string | undefined, complain: (line: string) => void): Promise<number> {
  if ([0, 1].some((fd) => isInLineMode(addon, fd))) {
    complain("bridge: a terminal in line mode would change the bytes; start it without one (docker exec -i, not -it)");
    return STATUS_USAGE;
  }
  const reserved = reservedTransport(path ?? "");
  if (reserved !== undefined) {
    complain(`bridge: the socket's path ${reserved}`);
    return STATUS_USAGE;
  }
  const { bridge } = await import("../server/index.ts");
  return bridge(path, complain);
}

/** True for a terminal in line mode: only line mode has an end-of-file character. */
function isInLineMode(addon: Addon, fd: number): boolean {
  return addon.terminalEofByte(fd) >= 0;
}

function socketOf(environment: readonly Uint8Array[]): string | undefined {
  const entries = environment.map((entry) => Buffer.from(entry).toString());
  return entries.find((entry) => entry.startsWith(SOCKET_VARIABLE))?.slice(SOCKET_VARIABLE.length);
}
