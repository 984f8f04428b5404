/**
 * Environment of a process: whole entries (`NAME=value`), in order. Inherited entries are bytes, which need not be UTF-8
 * or well-formed. Given ones stay strings: as 100,000 byte arrays they would take 13 MB.
 */
export type Environment = readonly (Uint8Array | string)[];

/** The variable that is injected for the workload alone (contract, "Environment of an exec'd command"). */
const WORKLOAD_SOCKET_VARIABLE = "SVC_WORKLOAD_SOCKET";

/** Entries that the agent was started with. */
export type InheritedEnvironment = readonly Uint8Array[];

const EQUALS = 0x3d;

/** One character a byte: good for comparing names in any encoding. */
function nameOf(bytes: Uint8Array): string {
  const end = bytes.indexOf(EQUALS);
  return Buffer.from(bytes.buffer, bytes.byteOffset, end < 0 ? bytes.length : end).toString("latin1");
}

function comparable(name: string): string {
  return Buffer.from(name).toString("latin1");
}

function without(environment: Environment, names: Iterable<string>): Environment {
  const dropped = new Set(Array.from(names, comparable));
  return environment.filter((present) => !dropped.has(nameOf(Buffer.from(present as string))));
}

function entries(variables: ReadonlyMap<string, string>): string[] {
  return Array.from(variables, ([name, value]) => `${name}=${value}`);
}

/** `environment` with `variables` on top: a variable replaces every entry of its name. */
function overlay(environment: Environment, variables: ReadonlyMap<string, string>): Environment {
  if (variables.size === 0) return environment;
  // Only names in UTF-8 can be replaced: any other would change by being decoded and encoded.
  const kept = environment.filter((present) => {
    const name = nameOf(Buffer.from(present as string));
    const decoded = Buffer.from(name, "latin1").toString();
    return !variables.has(decoded) || comparable(decoded) !== name;
  });
  return [...kept, ...entries(variables)];
}

/** `environment` plus those of `variables` that it does not set. */
export function withDefaults(environment: Environment, variables: ReadonlyMap<string, string>): Environment {
  const missing = new Map([...variables].filter(([name]) => !environment.some(isNamed(name))));
  return missing.size === 0 ? environment : [...environment, ...entries(missing)];
}

/** Value of the first entry of that name, as getenv(3) finds it. */
export function lookup(environment: Environment, name: string): Uint8Array | undefined {
  const named = isNamed(name);
  const found = environment.find((candidate) => named(candidate) && Buffer.from(candidate as string).includes(EQUALS));
  if (found === undefined) return undefined;
  const bytes = Buffer.from(found as string);
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

/** New values of inherited variables; undefined: the variable is removed. */
export type Replacements = ReadonlyMap<string, string | undefined>;

const NO_REPLACEMENTS: Replacements = new Map();

/** The environments of the sandbox's processes, by the contract's three layers. */
export class SessionEnvironment {
  readonly #inherited: Environment;
  readonly #processEnv: ReadonlyMap<string, string>;
  readonly #workloadSocket: ReadonlyMap<string, string>;
  /** Without replacements, computed once: most commands get this one. */
  readonly session: Environment;

  constructor(sources: EnvironmentSources) {
    this.#inherited = without(sources.inherited, sources.bootstrapNames);
    // Only the workload gets this variable: a spec that names it must not pass it to exec'd commands.
    const processEnv = new Map(sources.processEnv);
    processEnv.delete(WORKLOAD_SOCKET_VARIABLE);
    this.#processEnv = processEnv;
    const { workloadSocket } = sources;
    this.#workloadSocket = new Map(workloadSocket === undefined ? [] : [[WORKLOAD_SOCKET_VARIABLE, workloadSocket]]);
    this.session = overlay(this.#inherited, processEnv);
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
    if (replaced.size === 0) return this.session;
    const set = new Map(
      [...replaced].filter((replacement): replacement is [string, string] => replacement[1] !== undefined),
    );
    return overlay([...without(this.#inherited, replaced.keys()), ...entries(set)], this.#processEnv);
  }
}
