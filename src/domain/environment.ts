/** Environment of a process: whole entries (`NAME=value`) as bytes, in order. Entries need not be UTF-8 or well-formed. */
export type Environment = readonly Uint8Array[];

/** The variable that is injected for the workload alone (contract, "Environment of an exec'd command"). */
export const WORKLOAD_SOCKET_VARIABLE = "SVC_WORKLOAD_SOCKET";

const EQUALS = 0x3d;

/** One character per byte: only to compare names, whatever their encoding. */
function nameOf(bytes: Uint8Array): string {
  const end = bytes.indexOf(EQUALS);
  return Buffer.from(bytes.buffer, bytes.byteOffset, end < 0 ? bytes.length : end).toString("latin1");
}

function comparable(name: string): string {
  return Buffer.from(name).toString("latin1");
}

function without(environment: Environment, names: Iterable<string>): Uint8Array[] {
  const dropped = new Set(Array.from(names, comparable));
  return environment.filter((present) => !dropped.has(nameOf(present)));
}

function entry(name: string, value: string): Uint8Array {
  return Buffer.from(`${name}=${value}`);
}

/** `environment` with `variables` on top: a name that is set replaces every entry of that name. */
export function overlay(environment: Environment, variables: ReadonlyMap<string, string>): Environment {
  if (variables.size === 0) return environment;
  const result = without(environment, variables.keys());
  for (const [name, value] of variables) result.push(entry(name, value));
  return result;
}

/** `environment` with those of `variables` that it does not set yet. */
export function withDefaults(environment: Environment, variables: ReadonlyMap<string, string>): Environment {
  const present = new Set(environment.map(nameOf));
  const missing = [...variables].filter(([name]) => !present.has(comparable(name)));
  return missing.length === 0 ? environment : [...environment, ...missing.map(([name, value]) => entry(name, value))];
}

/** Value of the first entry of that name, as getenv(3) finds it. */
export function lookup(environment: Environment, name: string): Uint8Array | undefined {
  const wanted = comparable(name);
  const found = environment.find((candidate) => candidate.includes(EQUALS) && nameOf(candidate) === wanted);
  return found?.subarray(found.indexOf(EQUALS) + 1);
}

/** What every child's environment is made from. */
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

/** What takes the place of an inherited variable; undefined: nothing does. */
export type Replacements = ReadonlyMap<string, string | undefined>;

const NO_REPLACEMENTS: Replacements = new Map();

/** The environments of the sandbox's processes, by the contract's three layers. */
export class SessionEnvironment {
  readonly #inherited: Environment;
  readonly #processEnv: ReadonlyMap<string, string>;
  readonly #workloadSocket: ReadonlyMap<string, string>;
  /** Without replacements: what most commands get. */
  readonly #session: Environment;

  constructor(sources: EnvironmentSources) {
    this.#inherited = without(sources.inherited, sources.bootstrapNames);
    // The socket's variable is not part of Process.env, so a spec that names it must not hand it to exec'd commands.
    const processEnv = new Map(sources.processEnv);
    processEnv.delete(WORKLOAD_SOCKET_VARIABLE);
    this.#processEnv = processEnv;
    const { workloadSocket } = sources;
    this.#workloadSocket = new Map(workloadSocket === undefined ? [] : [[WORKLOAD_SOCKET_VARIABLE, workloadSocket]]);
    this.#session = overlay(this.#inherited, processEnv);
  }

  /** Inherited - bootstrap, with `replaced`, + Process.env + SVC_WORKLOAD_SOCKET. */
  forWorkload(replaced: Replacements = NO_REPLACEMENTS): Environment {
    return overlay(this.#sessionWith(replaced), this.#workloadSocket);
  }

  /**
   * Inherited - bootstrap, with `replaced`, + Process.env + `requested`. The last layer is delivered unchanged, even for
   * the name of a bootstrap variable: the scrub removes inherited defaults, it does not override an explicit grant.
   */
  forCommand(requested: ReadonlyMap<string, string>, replaced: Replacements = NO_REPLACEMENTS): Environment {
    return overlay(this.#sessionWith(replaced), requested);
  }

  #sessionWith(replaced: Replacements): Environment {
    if (replaced.size === 0) return this.#session;
    const result = without(this.#inherited, replaced.keys());
    for (const [name, value] of replaced) if (value !== undefined) result.push(entry(name, value));
    return overlay(result, this.#processEnv);
  }
}
