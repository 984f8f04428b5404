import { type LogLevel, SOCKET_PATH_LIMIT_BYTES } from "../domain/index.ts";
import { LAST_PORT } from "../../shared/ports.ts";
import { nearest } from "../../shared/text.ts";
import { reservedTransport } from "../../shared/transports.ts";

/**
 * Names of the agent's variables, which are its whole configuration. The agent removes each of them from the
 * environment of every child (contract, "Environment of an exec'd command", layer 1).
 */
export const BOOTSTRAP_VARIABLES = [
  "SVC_INSTANCE_TOKEN",
  "SVC_INSTANCE_TOKEN_FILE",
  "SVC_GUEST_PORT",
  "SVC_GUEST_VSOCK_PORT",
  "SVC_TLS_CERT_FILE",
  "SVC_TLS_KEY_FILE",
  "SVC_TLS_CLIENT_CA_FILE",
  "SVC_GUEST_SOCKET",
  "SVC_WORKLOAD_SOCKET",
  "SVC_PROBE_SOCKET",
  "SVC_PROCESS_SPEC",
  "SVC_PROCESS_SPEC_FILE",
  "SVC_HOOKS_SPEC",
  "SVC_HOOKS_SPEC_FILE",
  "SVC_LOG_LEVEL",
] as const;

/**
 * Common prefix of the agent's variables. Entries without this prefix are dropped first, because searching a large
 * environment for each variable would delay the start of the workload.
 */
const PREFIX: Buffer = Buffer.from("SVC_");

export type BootstrapVariable = (typeof BOOTSTRAP_VARIABLES)[number];

/**
 * A fault of one variable, or of the file that it names. The text shows no value of a variable, with one exception: the
 * path of a file that cannot be read.
 */
export interface BootstrapFault {
  readonly variable: BootstrapVariable;
  /** The problem without the variable's name, such as "is empty; set a value or remove it", or "field: problem". */
  readonly problem: string;
}

/** All faults of the configuration, in the order of BOOTSTRAP_VARIABLES. */
export class BootstrapError extends Error {
  override readonly name = "BootstrapError";
  readonly faults: readonly BootstrapFault[];

  constructor(faults: readonly BootstrapFault[]) {
    super(faults.map(describeFault).join("\n"));
    this.faults = faults;
  }
}

/** One line for people, such as `SVC_GUEST_PORT: must be a number from 1 to 65535`. */
export function describeFault(fault: BootstrapFault): string {
  return `${fault.variable}: ${fault.problem}`;
}

/** The value of a bootstrap variable and its problems. The value is valid only if there are no problems. */
export interface Read<Value> {
  readonly value: Value;
  readonly problems: readonly string[];
}

/** Values of the bootstrap variables that are set. */
export type BootstrapValues = ReadonlyMap<BootstrapVariable, string>;

/** The variables that are set and valid, and the faults of the others. */
export interface BootstrapVariables {
  readonly values: BootstrapValues;
  /**
   * The value of SVC_INSTANCE_TOKEN. It shares the memory of the environment entry, so that InstanceToken.digest() can
   * overwrite the token there.
   */
  readonly token: Buffer | undefined;
  readonly faults: BootstrapFault[];
}

/** Reads the agent's variables from raw `NAME=value` entries. */
export function readVariables(environ: readonly Uint8Array[]): BootstrapVariables {
  let token: Buffer | undefined;
  const values = new Map<BootstrapVariable, string>();
  const faults: BootstrapFault[] = [];
  const given = environ.map(asBuffer).filter((entry) => entry.subarray(0, PREFIX.length).equals(PREFIX));
  for (const variable of BOOTSTRAP_VARIABLES) {
    const [raw, ...more] = rawValues(given, variable);
    if (raw === undefined) continue;
    const value = variable === "SVC_INSTANCE_TOKEN" ? raw : decode(raw);
    if (more.length > 0) faults.push({ variable, problem: "is set more than once; set it once" });
    else if (value === undefined) faults.push({ variable, problem: "is not valid UTF-8" });
    else if (value.length === 0) faults.push({ variable, problem: "is empty; set a value or remove it" });
    else if (typeof value === "string") values.set(variable, value);
    else token = value;
  }
  return { values, token, faults };
}

/** A variable of the environment that was probably meant for the agent, but is not one of its variables. */
export interface UnknownVariable {
  readonly name: string;
  /** The variable that was probably meant. Undefined if no variable has a similar name. */
  readonly meant: string | undefined;
}

/**
 * Finds unknown variables whose names begin with SVC_, or differ from the name of an agent's variable in at most two
 * letters. They are not faults: an image may use the same prefix for its own variables. The result contains no values.
 */
export function unknownVariables(environ: readonly Uint8Array[]): UnknownVariable[] {
  const known: readonly string[] = BOOTSTRAP_VARIABLES;
  return environ.flatMap((entry) => {
    const name = asBuffer(entry.subarray(0, Math.max(entry.indexOf(EQUALS), 0))).toString("latin1");
    const hasPrefix = NAME_WITH_PREFIX.test(name);
    if (known.includes(name) || !(hasPrefix || NAME_TO_COMPARE.test(name))) return [];
    const meant = nearest(name, known) ?? (hasPrefix ? shortestWith(name, known) : undefined);
    return hasPrefix || meant !== undefined ? [{ name, meant }] : [];
  });
}

/** One line for people, such as `SVC_TOKEN is not a variable of the agent; did you mean SVC_INSTANCE_TOKEN?`. */
export function describeUnknown({ name, meant }: UnknownVariable): string {
  const problem = `${name} is not a variable of the agent`;
  return meant === undefined ? problem : `${problem}; did you mean ${meant}?`;
}

/** The shortest known name that contains all words of the given name: SVC_INSTANCE_TOKEN for SVC_TOKEN. */
function shortestWith(name: string, known: readonly string[]): string | undefined {
  const words = name.split("_");
  const candidates = known.filter((each) => words.every((word) => each.split("_").includes(word)));
  return candidates.toSorted((a, b) => a.length - b.length)[0];
}

const EQUALS = 0x3d;
/**
 * Matches names that may be misspelled names of the agent's variables. Only these names are compared with the real
 * ones, because comparing is slow. One of the first three letters must be S, V or C: at most two letters of the prefix
 * SVC_ may be wrong, so one of these three remains.
 */
const NAME_TO_COMPARE = /^[A-Z_]{0,2}[SVC][A-Z_]{8,25}$/;
/**
 * An unknown name that begins with SVC_ is reported only if it matches this pattern. It is then safe to print and fits
 * on a line.
 */
const NAME_WITH_PREFIX = /^SVC_[A-Za-z0-9_]{1,60}$/;

function asBuffer({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

function rawValues(entries: readonly Buffer[], variable: BootstrapVariable): Buffer[] {
  const head = Buffer.from(`${variable}=`);
  return entries
    .filter((entry) => entry.subarray(0, head.length).equals(head))
    .map((entry) => entry.subarray(head.length));
}

function decode(raw: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
  } catch {
    return undefined;
  }
}

const LOG_LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];

/** Reads a port number from 1 to `last`, which is by default the highest TCP port. */
export function readPort(text: string | undefined, last: number = LAST_PORT): Read<number | undefined> {
  if (text === undefined) return { value: undefined, problems: [] };
  const port = /^[0-9]+$/.test(text) && text.length <= String(last).length ? Number(text) : 0;
  return port >= 1 && port <= last
    ? { value: port, problems: [] }
    : { value: undefined, problems: [`must be a number from 1 to ${last}`] };
}

export function readSocketPath(path: string | undefined): Read<string | undefined> {
  if (path === undefined) return { value: undefined, problems: [] };
  const reserved = reservedTransport(path);
  if (reserved !== undefined) return { value: path, problems: [reserved] };
  const problems: string[] = [];
  if (!path.startsWith("/")) problems.push("must be an absolute path");
  else if (path.endsWith("/")) problems.push("must name a file, not a directory");
  if (Buffer.byteLength(path) > SOCKET_PATH_LIMIT_BYTES) {
    problems.push(`must not be longer than ${SOCKET_PATH_LIMIT_BYTES} bytes, the limit of a unix socket's path`);
  }
  return { value: path, problems };
}

/** Reads SVC_LOG_LEVEL; the default is info. */
export function readLogLevel(text = "info"): Read<LogLevel> {
  const level = LOG_LEVELS.find((candidate) => candidate === text);
  return level === undefined
    ? { value: "info", problems: [`must be one of ${LOG_LEVELS.join(", ")}`] }
    : { value: level, problems: [] };
}
