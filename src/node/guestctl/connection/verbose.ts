import { subscribe } from "node:diagnostics_channel";
import { CONNECTION_CHANNEL, type ConnectionEvent } from "../../client/index.ts";
import { printable } from "../cli/index.ts";

/** Reports each event of the connection on standard error, with the time since the connection was begun. */
export function reportConnections(host: NodeJS.Process): void {
  let beganMs = performance.now();
  subscribe(CONNECTION_CHANNEL, (message) => {
    const event = message as ConnectionEvent;
    if (event.event === "connecting") beganMs = performance.now();
    reportVerbosely(host, wordsOf(event, performance.now() - beganMs));
  });
}

/** Writes one line of --verbose. */
export function reportVerbosely({ stderr }: NodeJS.Process, text: string): void {
  stderr.write(`guestctl: ${printable(text)}\n`);
}

function wordsOf(event: ConnectionEvent, afterMs: number): string {
  const after = `after ${Math.round(afterMs)} ms`;
  switch (event.event) {
    case "connecting":
      return "connecting";
    case "connected":
      return event.address === undefined ? `connected ${after}` : `${event.address} answers ${after}`;
    case "failed":
      return `no connection ${after}${event.reason === undefined ? "" : `: ${event.reason}`}`;
    case "retrying":
      return `trying again in ${event.pauseMs} ms: ${event.reason}`;
  }
}
