import { subscribe } from "node:diagnostics_channel";
import { NODE_CHANNEL, type NodeEvent } from "../../sandboxes/index.ts";
import type { Reporter } from "../verbose/index.ts";

/** The daemon's URL, and the state directory and id of a node. */
export interface NodePlace {
  readonly api: string;
  readonly state: string;
  readonly nodeId: string;
}

/**
 * Reports the daemon's URL and the node's state directory. From then on, reports each request to the daemon with its
 * status and duration, each address of an agent that is dialled, and each retry. Never reports a token.
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

/**
 * Removes the query parameters `tags[…]`, with which a node lists only its own objects. They are the same in every
 * listing.
 */
function withoutTags(path: string): string {
  const { pathname, searchParams } = new URL(path, "http://localhost");
  const others = new URLSearchParams([...searchParams].filter(([name]) => !name.startsWith("tags[")));
  return others.size === 0 ? pathname : `${pathname}?${others.toString()}`;
}
