/** Where an agent is, and how to be let in. */
export interface Target {
  /** `HOST:PORT` or `unix:PATH`. Either this or `bridge`. */
  readonly address?: string | undefined;
  /** A shell command whose standard input and output lead to the agent. */
  readonly bridge?: string | undefined;
  /** Path of a credential folder. */
  readonly credentials: string;
  readonly serverName?: string | undefined;
}
