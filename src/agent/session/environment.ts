/**
 * Environment of a process: whole entries (`NAME=value`), in order. Inherited entries are bytes, which need not be
 * UTF-8 or well-formed. Given ones stay strings: as 100,000 byte arrays they would take 13 MB.
 */
export type Environment = readonly (Uint8Array | string)[];

/** The variable that is injected for the workload alone (contract, "Environment of an exec'd command"). */
const WORKLOAD_SOCKET_VARIABLE = "SVC_WORKLOAD_SOCKET";

/** The shell's variables for its present and its previous directory (POSIX cd). */
const DIRECTORY_VARIABLES = ["PWD", "OLDPWD"] as const;

/** Entries that the agent was started with. */
export type InheritedEnvironment = readonly Uint8Array[];

const EQUALS = 0x3d;

/**
 * An entry's bytes: a string's in UTF-8, an inherited one's without a copy. One of those is the token, which is
 * overwritten.
 */
function bytesOf(entry: Uint8Array | string): Buffer {
  return typeof entry === "string" ? Buffer.from(entry) : Buffer.from(entry.buffer, entry.byteOffset, entry.length);
}

/** One character a byte: good for comparing names in any encoding. */
function nameOf(entry: Uint8Array | string): string {
  const bytes = bytesOf(entry);
  const end = bytes.indexOf(EQUALS);
  return bytes.toString("latin1", 0, end < 0 ? bytes.length : end);
}

/** A name in the same form. */
export function comparable(name: string): string {
  return Buffer.from(name).toString("latin1");
}

/** Variables by their names; undefined: there is none of that name. */
type Variables = ReadonlyMap<string, string | undefined>;

function entries(variables: Variables): string[] {
  const set: string[] = [];
  for (const [name, value] of variables) if (value !== undefined) set.push(`${name}=${value}`);
  return set;
}

/** `environment` with `variables` on top: a variable replaces or removes every entry of its name. */
function overlay(environment: Environment, variables: Variables): Environment {
  if (variables.size === 0) return environment;
  // Only names in UTF-8 can be replaced: any other would change by being decoded and encoded.
  const kept = environment.filter((present) => {
    const name = nameOf(present);
    const decoded = Buffer.from(name, "latin1").toString();
    return !variables.has(decoded) || comparable(decoded) !== name;
  });
  return [...kept, ...entries(variables)];
}

/** `environment` plus those of `variables` that it does not set. */
export function withDefaults(environment: Environment, variables: Variables): Environment {
  const missing = entries(new Map([...variables].filter(([name]) => !environment.some(isNamed(name)))));
  return missing.length === 0 ? environment : [...environment, ...missing];
}

/** Value of the first entry of that name, as getenv(3) finds it. */
export function lookup(environment: Environment, name: string): Uint8Array | undefined {
  const named = isNamed(name);
  const found = environment.find((candidate) => named(candidate) && bytesOf(candidate).includes(EQUALS));
  if (found === undefined) return undefined;
  const bytes = bytesOf(found);
  return bytes.subarray(bytes.indexOf(EQUALS) + 1);
}

/** Compares the first byte before it decodes an entry. */
function isNamed(name: string): (entry: Uint8Array | string) => boolean {
  const wanted = comparable(name);
  const first = wanted.charCodeAt(0);
  const given = `${name}=`;
  return (entry) =>
    typeof entry === "string" ? entry.startsWith(given) : entry[0] === first && nameOf(entry) === wanted;
}

/** What replaces the agent's own PWD and OLDPWD in the environment of a command that starts in this directory. */
export function directoryVariables(cwd: string): Map<string, string | undefined> {
  return new Map([
    ["PWD", cwd],
    ["OLDPWD", undefined],
  ]);
}

/** Only the workload gets its socket's variable: a spec that names it must not pass it to exec'd commands. */
function sessionVariables(processEnv: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const variables = new Map(processEnv);
  variables.delete(WORKLOAD_SOCKET_VARIABLE);
  return variables;
}

/** The parts from which every child's environment is made. */
export interface EnvironmentSources {
  /** The environment that the agent was started with, byte for byte. */
  readonly inherited: Environment;
  /** Names of the bootstrap channel. */
  readonly bootstrapNames: readonly string[];
  /** `Process.env`. */
  readonly processEnv: ReadonlyMap<string, string>;
  /** Value of SVC_WORKLOAD_SOCKET for the workload; undefined where there is no such socket. */
  readonly workloadSocket: string | undefined;
}

/** The environments of the sandbox's processes, by the contract's three layers. */
export class SessionEnvironment {
  readonly #inherited: Environment;
  #processEnv: ReadonlyMap<string, string>;
  /** Without replacements, computed once: most commands get this one. */
  #session: Environment;
  #version = 1;
  /** The agent was started with PWD or OLDPWD, which name directories of the agent. */
  readonly inheritsDirectories: boolean;
  /** The workload's last layer: SVC_WORKLOAD_SOCKET, if there is such a socket. */
  readonly ofWorkload: ReadonlyMap<string, string>;

  constructor(sources: EnvironmentSources) {
    this.#inherited = overlay(sources.inherited, new Map(sources.bootstrapNames.map((name) => [name, undefined])));
    this.inheritsDirectories = DIRECTORY_VARIABLES.some((name) => this.#inherited.some(isNamed(name)));
    this.#processEnv = sessionVariables(sources.processEnv);
    const { workloadSocket } = sources;
    this.ofWorkload = new Map(workloadSocket === undefined ? [] : [[WORKLOAD_SOCKET_VARIABLE, workloadSocket]]);
    this.#session = overlay(this.#inherited, this.#processEnv);
  }

  /** 1 at the start; 1 more with each `renew` (HealthResponse.process_env_version). */
  get version(): number {
    return this.#version;
  }

  /** Puts another `Process.env` in force, whole: for commands that start from now on. */
  renew(processEnv: ReadonlyMap<string, string>): void {
    this.#processEnv = sessionVariables(processEnv);
    this.#session = overlay(this.#inherited, this.#processEnv);
    this.#version += 1;
  }

  /**
   * Inherited - bootstrap, with `replaced`, + Process.env + `requested`. The last layer is delivered unchanged, even
   * for the name of a bootstrap variable. The scrub removes inherited defaults, but does not override an explicit
   * grant.
   *
   * @param replaced new values of inherited variables; undefined: the variable is removed
   */
  with(requested: ReadonlyMap<string, string>, replaced: Variables): Environment {
    if (replaced.size === 0) return overlay(this.#session, requested);
    return overlay(overlay(overlay(this.#inherited, replaced), this.#processEnv), requested);
  }
}
