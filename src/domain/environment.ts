import { encoded } from "./many.ts";

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

function entries(variables: ReadonlyMap<string, string>): Uint8Array[] {
  return encoded(Array.from(variables, ([name, value]) => `${name}=${value}`));
}

/** `environment` with `variables` on top: a name that is set replaces every entry of that name. */
export function overlay(environment: Environment, variables: ReadonlyMap<string, string>): Environment {
  if (variables.size === 0) return environment;
  // Only a name that is UTF-8 can be replaced: what decoding makes of another is encoded differently.
  const kept = environment.filter((present) => {
    const name = nameOf(present);
    const decoded = Buffer.from(name, "latin1").toString();
    return !variables.has(decoded) || comparable(decoded) !== name;
  });
  return kept.concat(entries(variables));
}

/** `environment` with those of `variables` that it does not set yet. */
export function withDefaults(environment: Environment, variables: ReadonlyMap<string, string>): Environment {
  const missing = new Map([...variables].filter(([name]) => !environment.some(isNamed(name))));
  return missing.size === 0 ? environment : environment.concat(entries(missing));
}

/** Value of the first entry of that name, as getenv(3) finds it. */
export function lookup(environment: Environment, name: string): Uint8Array | undefined {
  const named = isNamed(name);
  const found = environment.find((candidate) => candidate.includes(EQUALS) && named(candidate));
  return found?.subarray(found.indexOf(EQUALS) + 1);
}

/** Compares by the first byte before it makes a string of one. */
function isNamed(name: string): (entry: Uint8Array) => boolean {
  const wanted = comparable(name);
  const first = wanted.charCodeAt(0);
  return (entry) => entry[0] === first && nameOf(entry) === wanted;
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

/** The environments of the sandbox's processes, by the contract's three layers. Computed once, at the start. */
export class SessionEnvironment {
  readonly #session: Environment;
  readonly #workload: Environment;

  constructor(sources: EnvironmentSources) {
    const scrubbed = without(sources.inherited, sources.bootstrapNames);
    // The socket's variable is not part of Process.env, so a spec that names it must not hand it to exec'd commands.
    const processEnv = new Map(sources.processEnv);
    processEnv.delete(WORKLOAD_SOCKET_VARIABLE);
    this.#session = overlay(scrubbed, processEnv);
    this.#workload =
      sources.workloadSocket === undefined
        ? this.#session
        : overlay(this.#session, new Map([[WORKLOAD_SOCKET_VARIABLE, sources.workloadSocket]]));
  }

  /** Inherited - bootstrap + Process.env + SVC_WORKLOAD_SOCKET. */
  forWorkload(): Environment {
    return this.#workload;
  }

  /**
   * Inherited - bootstrap + Process.env + `requested`. The last layer is delivered unchanged, even for the name of a
   * bootstrap variable: the scrub removes inherited defaults, it does not override an explicit grant.
   */
  forCommand(requested: ReadonlyMap<string, string>): Environment {
    return overlay(this.#session, requested);
  }
}
