/**
 * The environment of a process: entries (`NAME=value`) in order. Inherited entries are bytes, which may be neither
 * UTF-8 nor well-formed. Other entries stay strings: as byte arrays, 100,000 of them would take 13 MB.
 */
export type Environment = readonly (Uint8Array | string)[];

/** The variable that only the workload gets (contract, "Environment of an exec'd command"). */
const WORKLOAD_SOCKET_VARIABLE = "SVC_WORKLOAD_SOCKET";

/** The shell's variables for its current and its previous directory (POSIX cd). */
const DIRECTORY_VARIABLES = ["PWD", "OLDPWD"] as const;

/** The entries that the agent was started with. */
export type InheritedEnvironment = readonly Uint8Array[];

const EQUALS = 0x3d;

/**
 * Returns the bytes of an entry. Does not copy an inherited entry, because it may contain the token: the agent later
 * overwrites the token in the entry, but a copy would remain in memory.
 */
function bytesOf(entry: Uint8Array | string): Buffer {
  return typeof entry === "string" ? Buffer.from(entry) : Buffer.from(entry.buffer, entry.byteOffset, entry.length);
}

/** Decodes each byte as one character, so that names of any encoding can be compared. */
function nameOf(entry: Uint8Array | string): string {
  const bytes = bytesOf(entry);
  const end = bytes.indexOf(EQUALS);
  return bytes.toString("latin1", 0, end < 0 ? bytes.length : end);
}

/** Converts a name to the form that `nameOf` returns. */
export function comparable(name: string): string {
  return Buffer.from(name).toString("latin1");
}

/** Variables by name. An undefined value removes the variable. */
type Variables = ReadonlyMap<string, string | undefined>;

function entries(variables: Variables): string[] {
  const set: string[] = [];
  for (const [name, value] of variables) if (value !== undefined) set.push(`${name}=${value}`);
  return set;
}

/** `environment` with `variables` applied: each variable replaces or removes all entries of its name. */
function withVariables(environment: Environment, variables: Variables): Environment {
  if (variables.size === 0) return environment;
  // Only names in UTF-8 can be replaced; decoding and encoding any other name would change it.
  const kept = environment.filter((present) => {
    const name = nameOf(present);
    const decoded = Buffer.from(name, "latin1").toString();
    return !variables.has(decoded) || comparable(decoded) !== name;
  });
  return [...kept, ...entries(variables)];
}

/** Returns `environment`, extended by those of `variables` that it does not set. */
export function withDefaults(environment: Environment, variables: Variables): Environment {
  const missing = entries(new Map([...variables].filter(([name]) => !environment.some(isNamed(name)))));
  return missing.length === 0 ? environment : [...environment, ...missing];
}

/** Value of the first entry with this name, as getenv(3) returns it. */
export function lookup(environment: Environment, name: string): Uint8Array | undefined {
  const named = isNamed(name);
  const found = environment.find((candidate) => named(candidate) && bytesOf(candidate).includes(EQUALS));
  if (found === undefined) return undefined;
  const bytes = bytesOf(found);
  return bytes.subarray(bytes.indexOf(EQUALS) + 1);
}

/**
 * Returns a function that tests whether an entry has this name. For speed, it compares the first byte before it decodes
 * an entry.
 */
function isNamed(name: string): (entry: Uint8Array | string) => boolean {
  const wanted = comparable(name);
  const first = wanted.charCodeAt(0);
  const given = `${name}=`;
  return (entry) =>
    typeof entry === "string" ? entry.startsWith(given) : entry[0] === first && nameOf(entry) === wanted;
}

/** Replaces the agent's own PWD and OLDPWD in the environment of a command that starts in the directory `cwd`. */
export function directoryVariables(cwd: string): Map<string, string | undefined> {
  return new Map([
    ["PWD", cwd],
    ["OLDPWD", undefined],
  ]);
}

/**
 * Returns the spec's variables without SVC_WORKLOAD_SOCKET. The agent sets this variable itself, and only for the
 * workload; a value in the spec is ignored.
 */
function sessionVariables(processEnv: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const variables = new Map(processEnv);
  variables.delete(WORKLOAD_SOCKET_VARIABLE);
  return variables;
}

export interface EnvironmentSources {
  /** The environment that the agent was started with, byte for byte. */
  readonly inherited: Environment;
  /** Names of the bootstrap variables, which children do not inherit from the agent. */
  readonly bootstrapNames: readonly string[];
  /** The field `Process.env` of SVC_PROCESS_SPEC. */
  readonly processEnv: ReadonlyMap<string, string>;
  /** Value of SVC_WORKLOAD_SOCKET for the workload. Undefined if there is no such socket. */
  readonly workloadSocket: string | undefined;
}

/**
 * Builds the environment of each command from three layers: the inherited variables, the variables of the process spec,
 * and the variables that the command's request sets.
 */
export class SessionEnvironment {
  readonly #inherited: Environment;
  #processEnv: ReadonlyMap<string, string>;
  /** The environment of a command that sets no variables. Computed once, because most commands need exactly this one. */
  #session: Environment;
  #version = 1;
  /** Whether the agent was started with PWD or OLDPWD. These values would be wrong for a command. */
  readonly inheritsDirectories: boolean;
  /** Variables that are added last, and only for the workload: SVC_WORKLOAD_SOCKET, if there is such a socket. */
  readonly ofWorkload: ReadonlyMap<string, string>;

  constructor(sources: EnvironmentSources) {
    this.#inherited = withVariables(
      sources.inherited,
      new Map(sources.bootstrapNames.map((name) => [name, undefined])),
    );
    this.inheritsDirectories = DIRECTORY_VARIABLES.some((name) => this.#inherited.some(isNamed(name)));
    this.#processEnv = sessionVariables(sources.processEnv);
    const { workloadSocket } = sources;
    this.ofWorkload = new Map(workloadSocket === undefined ? [] : [[WORKLOAD_SOCKET_VARIABLE, workloadSocket]]);
    this.#session = withVariables(this.#inherited, this.#processEnv);
  }

  /** Version of the environment: 1 at the start, and 1 more after each `renew` (HealthResponse.process_env_version). */
  get version(): number {
    return this.#version;
  }

  /** Replaces all of `Process.env` for commands that start from now on. */
  renew(processEnv: ReadonlyMap<string, string>): void {
    this.#processEnv = sessionVariables(processEnv);
    this.#session = withVariables(this.#inherited, this.#processEnv);
    this.#version += 1;
  }

  /**
   * Builds an environment from three layers. A later layer overrides an earlier one:
   *
   * - the inherited environment, without the bootstrap variables and with the changes of `replaced`
   * - `Process.env`
   * - `requested`, which may even set bootstrap variables
   *
   * @param replaced new values of inherited variables; an undefined value removes the variable
   */
  with(requested: ReadonlyMap<string, string>, replaced: Variables): Environment {
    if (replaced.size === 0) return withVariables(this.#session, requested);
    return withVariables(withVariables(withVariables(this.#inherited, replaced), this.#processEnv), requested);
  }
}
