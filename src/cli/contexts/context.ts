/** How an agent is reached and how to be let in, under a name of the user's. */
export interface Context {
  /** `HOST:PORT` or `unix:PATH`. Either this or `bridge`. */
  readonly address?: string | undefined;
  /** A shell command whose standard input and output lead to the agent. */
  readonly bridge?: string | undefined;
  /** Absolute path of a credential folder. */
  readonly credentials: string;
  readonly serverName?: string | undefined;
}

/** All contexts of a user. */
export interface Contexts {
  /** Name of the one that is used when nothing else is said; it may have been removed. */
  readonly current?: string | undefined;
  readonly byName: ReadonlyMap<string, Context>;
}

/** Whether a context may be called that. */
export function isContextName(name: string): boolean {
  return /^[\w][\w.-]*$/.test(name);
}
