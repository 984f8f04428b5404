import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { CONNECTION_CHANNEL, type ConnectionEvent } from "../../client/index.ts";
import { type Host, waitedFor } from "../cli/index.ts";

/**
 * Delay before the message "connecting to …" is shown. It is longer than most successful connections take, which may be
 * some hundred milliseconds on a busy machine.
 */
const FIRST_AFTER_MS = 1_000;

/**
 * At a terminal, shows for how long guestctl has been waiting for its first connection: an agent that is suspended or
 * starting may keep a command waiting. Later connections are reported by the commands that reconnect.
 */
export function showConnecting(where: string, host: Host): void {
  if (!host.stderr.isTTY) return;
  let settle: (() => void) | undefined;
  const onEvent = (message: unknown): void => {
    const { event } = message as ConnectionEvent;
    if (event === "connecting") {
      settle?.();
      const settled = new Promise<void>((resolve) => {
        settle = resolve;
      });
      void waitedFor(`connecting to ${where}`, host, () => settled, FIRST_AFTER_MS);
      return;
    }
    settle?.();
    settle = undefined;
    if (event === "connected") unsubscribe(CONNECTION_CHANNEL, onEvent);
  };
  subscribe(CONNECTION_CHANNEL, onEvent);
}
