import { DEFAULT_SERVER_NAME } from "../../client/index.ts";
import { DEFAULT_PORT } from "./address.ts";

/** Options of every command that talks to an agent. */
export const CONNECTION_OPTIONS = {
  address: {
    type: "string",
    short: "a",
    argument: "ADDRESS",
    help: `where the agent listens: HOST[:PORT], port ${DEFAULT_PORT} by default, or unix:PATH (or GUESTCTL_ADDRESS)` as string,
  },
  bridge: {
    type: "string",
    argument: "COMMAND",
    help: "a shell command whose standard input and output lead to the agent, instead of an address (or GUESTCTL_BRIDGE)",
  },
  credentials: {
    type: "string",
    short: "c",
    argument: "DIR",
    completes: "folder",
    help: 'folder made by "guestctl issue" (or GUESTCTL_CREDENTIALS); unix: and --bridge only need its token',
  },
  "server-name": {
    type: "string",
    argument: "NAME",
    help: `name in the agent's certificate (default ${DEFAULT_SERVER_NAME}; or GUESTCTL_SERVER_NAME)` as string,
  },
  context: {
    type: "string",
    argument: "NAME",
    completes: "context",
    help: 'use this context of "guestctl context" (or GUESTCTL_CONTEXT)',
  },
} as const;

/** Their values. */
export interface ConnectionValues {
  readonly address?: string | undefined;
  readonly bridge?: string | undefined;
  readonly credentials?: string | undefined;
  readonly "server-name"?: string | undefined;
  readonly context?: string | undefined;
}
