import { channel } from "node:diagnostics_channel";

/**
 * An event of a node: a request to the substrate's daemon, or a connection to the agent of a sandbox. Events contain no
 * secrets.
 */
export type NodeEvent =
  | {
      readonly event: "request";
      readonly method: string;
      /** Path and query of the request, relative to the daemon's URL. */
      readonly path: string;
      readonly durationMs: number;
      /** HTTP status of the answer. Undefined if there was none. */
      readonly status?: number;
      /** Why the daemon has not answered. Undefined if it has. */
      readonly reason?: string;
    }
  | {
      readonly event: "dialling";
      readonly sandbox: string;
      readonly address: string;
      /**
       * The directories with the credentials. There are two of them while credentials are being replaced: one with the
       * old ones, and one with the new ones.
       */
      readonly credentials: readonly string[];
    }
  | { readonly event: "retrying"; readonly reason: string };

/** Name of the channel of node:diagnostics_channel on which all nodes of this process publish their events. */
export const NODE_CHANNEL = "guest-agent-sandboxes";

const events = channel(NODE_CHANNEL);

/** Publishes an event. Does nothing without a subscriber. */
export function publishNode(event: NodeEvent): void {
  if (events.hasSubscribers) events.publish(event);
}

/** A `fetch` that publishes each request with its duration and the status of the answer. */
export function traced(send: Fetch): Fetch {
  return async (input, init) => {
    if (!events.hasSubscribers) return send(input, init);
    const { pathname, search } = new URL(input instanceof Request ? input.url : input);
    const method = (init?.method ?? "GET").toUpperCase();
    const startedMs = performance.now();
    const about = (): Extract<NodeEvent, { event: "request" }> => ({
      event: "request",
      method,
      path: `${pathname}${search}`,
      durationMs: Math.round(performance.now() - startedMs),
    });
    try {
      const response = await send(input, init);
      publishNode({ ...about(), status: response.status });
      return response;
    } catch (error) {
      publishNode({ ...about(), reason: causeOf(error) });
      throw error;
    }
  };
}

type Fetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

/** Returns the message of the error's cause if there is one, because the message of fetch itself is only `fetch failed`. */
function causeOf(error: unknown): string {
  const { message, cause } = error instanceof Error ? error : new Error(String(error));
  return cause instanceof Error && cause.message !== "" ? cause.message : message;
}
