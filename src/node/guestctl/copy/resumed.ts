import { type GuestError, isConnectionLost } from "../../client/index.ts";
import type { CopyContext } from "./report.ts";

/**
 * The number of retries after a lost connection, and how long each retry waits for the agent. Both are the same as for
 * whole directories (`Files.upload`).
 */
const RESUMES = 10;
const REACH_TIMEOUT_MS = 30_000;

/** Returns a callback that reports a lost connection. */
export function onReconnect({ report }: Pick<CopyContext, "report">): (lost: GuestError) => void {
  return ({ message }) => report.note(`${message}; reconnecting`);
}

/**
 * Copies one file. After a lost connection it starts again from the beginning, which is safe because both sides rename
 * a file into place only when it is complete.
 */
export async function resumed(context: CopyContext, copy: () => Promise<void>): Promise<void> {
  for (let resumes = 0; ; resumes += 1)
    try {
      if (resumes > 0) await context.client.health({ waitForReady: true, requestTimeoutMs: REACH_TIMEOUT_MS });
      await copy();
      return;
    } catch (error) {
      if (!isConnectionLost(error) || resumes === RESUMES) throw error;
      onReconnect(context)(error);
    }
}
