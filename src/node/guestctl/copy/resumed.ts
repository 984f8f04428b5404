import { type GuestError, isConnectionLost } from "../../client/index.ts";
import type { CopyContext } from "./report.ts";

/** As for whole directories (uploadFolder): tries after a lost connection, and how long each waits for the agent. */
const RESUMES = 10;
const REACH_TIMEOUT_MS = 30_000;

/** Says that a lost connection is being made again. */
export function onReconnect({ report }: Pick<CopyContext, "report">): (lost: GuestError) => void {
  return ({ message }) => report.note(`${message}; reconnecting`);
}

/** Copies one file; again from its beginning after a lost connection. Both sides put a file in place once it is whole. */
export async function resumed(context: CopyContext, copy: () => Promise<void>): Promise<void> {
  for (let resumes = 0; ; resumes += 1)
    try {
      if (resumes > 0) await context.client.health({ waitForReady: true, timeoutMs: REACH_TIMEOUT_MS });
      await copy();
      return;
    } catch (error) {
      if (!isConnectionLost(error) || resumes === RESUMES) throw error;
      onReconnect(context)(error);
    }
}
