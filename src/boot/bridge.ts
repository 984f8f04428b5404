import { BOOTSTRAP_VARIABLES } from "../config/index.ts";
import type { Addon } from "../native/index.ts";
import { LauncherChannel, takeInheritance } from "../platform/index.ts";

const SOCKET_VARIABLE = "SVC_GUEST_SOCKET=";

/**
 * Joins standard input and output to the management socket of an agent: `path`, else that of SVC_GUEST_SOCKET, which is
 * in the launcher's hands where there is one. Resolves with the exit status; what failed is told to `complain`.
 */
export async function bootBridge(
  addon: Addon,
  path: string | undefined,
  complain: (line: string) => void,
): Promise<number> {
  const { entries, channelFd } = takeInheritance(addon, process.env, BOOTSTRAP_VARIABLES);
  const variable = entries
    .map((entry) => Buffer.from(entry).toString())
    .find((text) => text.startsWith(SOCKET_VARIABLE));
  const { bridge } = await import("../server/index.ts");
  const status = await bridge(path ?? variable?.slice(SOCKET_VARIABLE.length), complain);
  if (channelFd !== undefined) new LauncherChannel(addon, channelFd).announceExit();
  return status;
}
