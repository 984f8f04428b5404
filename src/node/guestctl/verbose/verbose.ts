import { subscribe } from "node:diagnostics_channel";
import { CONNECTION_CHANNEL, type ConnectionEvent } from "../../client/index.ts";
import { jsonLine, printable } from "../cli/index.ts";

/** Writes one line of --verbose. */
export type Reporter = (text: string) => void;

/** Returns a function that writes lines of --verbose to standard error, or JSON objects if the output is for programs. */
export function reporterOf({ stderr }: Pick<NodeJS.Process, "stderr">, isForPrograms = false): Reporter {
  return (text) => {
    stderr.write(isForPrograms ? jsonLine({ verbose: text }) : `guestctl: ${printable(text)}\n`);
  };
}

/** Reports each event of a connection, with the time since the connection was begun. */
export function reportConnections(report: Reporter): void {
  let beganMs = performance.now();
  subscribe(CONNECTION_CHANNEL, (message) => {
    const event = message as ConnectionEvent;
    if (event.event === "connecting") beganMs = performance.now();
    report(wordsOf(event, performance.now() - beganMs));
  });
}

function wordsOf(event: ConnectionEvent, afterMs: number): string {
  const after = `after ${Math.round(afterMs)} ms`;
  switch (event.event) {
    case "connecting":
      return "connecting";
    case "disconnected":
      return "disconnected";
    case "connected":
      return event.address === undefined ? `connected ${after}` : `${event.address} answers ${after}`;
    case "failed":
      return event.reason === undefined ? `no connection ${after}` : `no connection ${after}: ${event.reason}`;
    case "retrying":
      return `trying again in ${event.pauseMs} ms: ${event.reason}`;
  }
}
