import { subscribe } from "node:diagnostics_channel";
import { NODE_CHANNEL, type NodeEvent } from "../../sandboxes/index.ts";
import type { Reporter } from "../verbose/index.ts";

/** How a node reaches the daemon, and where its files are. */
export interface NodePlace {
  readonly api: string;
  readonly state: string;
  readonly nodeId: string;
}

/**
 * Reports where the node's daemon and files are, and from then on each request to the daemon with its status and time,
 * each address of an agent that is dialled, and each retry. Never reports a token.
 */
export function reportNode({ api, state, nodeId }: NodePlace, report: Reporter): void {
  report(`the substrate's daemon is ${api}; its token is in HYPEMAN_API_KEY`);
  report(`node ${nodeId}; journal and credentials in ${state}`);
  subscribe(NODE_CHANNEL, (message) => report(wordsOf(message as NodeEvent)));
}

function wordsOf(event: NodeEvent): string {
  switch (event.event) {
    case "request": {
      const { method, path, status, reason, durationMs } = event;
      const answer = `${method} ${withoutTags(path)}: ${status ?? "no answer"} after ${durationMs} ms`;
      return reason === undefined ? answer : `${answer}: ${reason}`;
    }
    case "dialling":
      return `${event.sandbox}: address ${event.address}; credentials from ${event.credentials.join(" and ")}`;
    case "retrying":
      return `trying again: ${event.reason}`;
  }
}

/** Removes the tags of the node from a query, because they are the same in every listing. */
function withoutTags(path: string): string {
  const { pathname, searchParams } = new URL(path, "http://localhost");
  const others = new URLSearchParams([...searchParams].filter(([name]) => !name.startsWith("tags[")));
  return others.size === 0 ? pathname : `${pathname}?${others.toString()}`;
}
