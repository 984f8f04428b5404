import { setTimeout as pause } from "node:timers/promises";
import { connect, type GuestClient, GuestError } from "../../client/index.ts";
import { printable } from "../cli/index.ts";
import { type ConnectionValues, connector } from "../target/index.ts";

const RETRY_PAUSE_MS = 1_000;

/**
 * Shows what a watch yields until SIGINT or SIGTERM, over lost connections too: restore duties end all, and credentials
 * may have changed. Throws as the first connection does. Resolves with the exit status.
 */
export async function watchUntilSignal<Report>(
  values: ConnectionValues,
  host: NodeJS.Process,
  watch: (client: GuestClient, signal: AbortSignal) => AsyncIterable<Report>,
  show: (report: Report) => Promise<void>,
): Promise<number> {
  const left = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) host.once(signal, () => left.abort());
  const { redial, connect: dial } = await connector(values, host);
  let wasThere = false;
  while (!left.signal.aborted) {
    try {
      await watchOnce(redial === undefined ? dial() : connect(await redial()), async (client) => {
        for await (const report of watch(client, left.signal)) {
          await show(report);
          wasThere = true;
        }
      });
    } catch (error) {
      if (left.signal.aborted) break;
      if (!wasThere || !(error instanceof GuestError) || error.status !== "UNAVAILABLE") throw error;
      host.stderr.write(`guestctl: ${printable(error.message)}; tries again\n`);
      await pause(RETRY_PAUSE_MS, undefined, { signal: left.signal }).catch(() => undefined);
    }
  }
  return 0;
}

async function watchOnce(client: GuestClient, watch: (client: GuestClient) => Promise<void>): Promise<void> {
  using watched = client;
  await watch(watched);
}
