import { readFile } from "node:fs/promises";
import { messageOf } from "../../../shared/errors.ts";
import type { SignalName } from "../../client/index.ts";
import { LAST_PORT } from "../../../shared/ports.ts";
import { nearest } from "../../../shared/text.ts";
import { alteredVariable, firstNotUtf8 } from "./argument-bytes.ts";
import { type Hints, findHint } from "./hints.ts";
import { CliError, UsageError } from "./errors.ts";
import { nameBytes, textOf } from "./raw-names.ts";

const UNIT_MS: Readonly<Record<string, number>> = { "": 1, ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * A number without a unit is in milliseconds. If it is smaller than this, the user probably meant seconds, so it is
 * rejected.
 */
const LEAST_BARE_MS = 1_000;

/**
 * Parses `500ms`, `1.5s`, `2m`, `1h`, `30d` or `5000`. Like the functions below, it returns undefined if the option is
 * missing, and throws UsageError for an invalid value.
 */
export function parseDurationMs(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  const [, number, unit = ""] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text) ?? [];
  const durationMs = Math.round(Number(number) * (UNIT_MS[unit] ?? 1));
  if (number === undefined || !Number.isSafeInteger(durationMs) || durationMs === 0) {
    throw new UsageError(`${option} requires a duration above 0, such as 500ms, 5s or 2m`);
  }
  if (unit === "" && durationMs < LEAST_BARE_MS) {
    throw new UsageError(`${option} ${text} has no unit; write ${text}s or ${text}ms`);
  }
  return durationMs;
}

/**
 * Limit on the durations for which guestctl waits. Node's timers fire at once if a delay exceeds 24.8 days, so this
 * limit is lower.
 */
const LONGEST_WAIT_MS = 86_400_000;

/** Parses a duration for which guestctl itself waits. */
export function parseWaitMs(text: string | undefined, option: string): number | undefined {
  const waitMs = parseDurationMs(text, option);
  if (waitMs !== undefined && waitMs > LONGEST_WAIT_MS) throw new UsageError(`${option} must be at most 24h`);
  return waitMs;
}

/**
 * Returns the value of the option, or, if the option is not given, the value of the environment variable. An empty
 * value counts as unset, as in most programs: `NAME= guestctl …`.
 */
export function setting(flag: string | undefined, variable?: string): string | undefined {
  return [flag, variable].find((value) => value !== undefined && value !== "");
}

/** Parses `NAME=value` entries. A bare `NAME` copies the variable from guestctl's environment, if it is set there. */
function parseVariables(entries: readonly string[], env: NodeJS.ProcessEnv): Record<string, string> {
  const variables = new Map<string, string>();
  for (const entry of entries) {
    const equals = entry.indexOf("=");
    const name = equals < 0 ? entry : entry.slice(0, equals);
    if (name === "") throw new UsageError("--env requires NAME=value or NAME");
    const own = Object.hasOwn(env, name) ? env[name] : undefined;
    const value = equals < 0 ? own : entry.slice(equals + 1);
    const altered = equals < 0 && own !== undefined ? alteredVariable(name, own) : undefined;
    if (altered !== undefined) throw new UsageError(altered);
    if (value !== undefined) variables.set(name, value);
  }
  // Do not assign to an object, because that would lose a variable named __proto__.
  return Object.fromEntries(variables);
}

/**
 * Reads files of variables. Each line is `NAME=value` or `NAME`; empty lines and lines that begin with # are ignored.
 * Later lines override earlier lines, and `entries` override the files. A bare NAME copies the variable from `env`.
 * Throws UsageError if `env` has no such variable. Otherwise a misspelt NAME would go unnoticed, and a fork would keep
 * the secret of its origin.
 */
export async function readVariables(
  files: readonly string[],
  entries: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<Record<string, string>> {
  const lines: string[] = [];
  for (const file of files) {
    const bytes = await readFile(file).catch((error: unknown) => {
      throw new CliError(`cannot read ${file}: ${messageOf(error)}`);
    });
    const wrong = firstNotUtf8(bytes);
    if (wrong !== undefined) {
      const before = bytes.subarray(0, wrong);
      const line = before.toString("latin1").split("\n");
      throw new CliError(`${file}: line ${line.length} is not valid UTF-8 at byte ${line.at(-1)?.length} of the line`);
    }
    const text = bytes.toString();
    lines.push(...text.split(/\r?\n/).filter((line) => line.trim() !== "" && !line.startsWith("#")));
  }
  const variables = parseVariables([...lines, ...entries], env);
  const unset = [...lines, ...entries].find((name) => !name.includes("=") && !Object.hasOwn(variables, name));
  if (unset === undefined) return variables;
  const option = entries.includes(unset) ? "--env" : "--env-file";
  throw new UsageError(
    `${option} ${unset}: guestctl's own environment has no such variable; set it, or write NAME=value`,
  );
}

/** Parses a whole number that is at least `least`. */
export function parseCount(text: string | undefined, option: string, least: number): number | undefined {
  if (text === undefined) return undefined;
  const count = /^\d+$/.test(text) ? Number(text) : NaN;
  if (!Number.isSafeInteger(count) || count < least) {
    throw new UsageError(`${option} must be a whole number, at least ${least}`);
  }
  return count;
}

const UNIT_BYTES: Readonly<Record<string, number>> = { "": 1, K: 2 ** 10, M: 2 ** 20 };

/** Parses a size such as `65536`, `64K` or `1M`, to bytes. Throws UsageError. */
export function parseSizeBytes(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  const [, number, unit = ""] = /^(\d+)([KM])?$/.exec(text) ?? [];
  const sizeBytes = Number(number) * (UNIT_BYTES[unit] ?? 1);
  if (number === undefined || !Number.isSafeInteger(sizeBytes) || sizeBytes === 0) {
    throw new UsageError(`${option} requires a size above 0, such as 65536, 64K or 1M`);
  }
  return sizeBytes;
}

/** Parses permissions in octal, such as `640` or `0640`. */
export function parseMode(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  if (!/^0?[0-7]{1,4}$/.test(text)) throw new UsageError(`${option} requires permissions in octal, such as 0640`);
  return Number.parseInt(text, 8);
}

/**
 * Parses a signal, such as `15`, `TERM` or `SIGTERM`, in upper or lower case. Unknown names are rejected later, by the
 * client.
 */
export function parseSignal(text: string): number | SignalName {
  if (/^\d+$/.test(text)) return Number(text);
  const name = text.toUpperCase();
  return (name.startsWith("SIG") ? name : `SIG${name}`) as SignalName;
}

/**
 * Parses a path in the sandbox, with or without a leading colon, which `cp` requires. An escape such as `\\xe9`, as
 * `ls` prints it, stands for a byte. Returns the form of raw-names.ts, which `nameOf` converts for a client. Throws
 * UsageError for a relative path.
 */
export function guestPath(argument: string): string {
  const path = withoutEscapes(argument.startsWith(":") ? argument.slice(1) : argument);
  if (!path.startsWith("/")) throw new UsageError(`${argument} is relative; ${absoluteForm(path)}`);
  return path;
}

/** An escaped byte, as `ls` prints it if a name is not UTF-8: `\\xe9`. */
const ESCAPE = /\\x([\da-f]{2})/g;

/** Replaces each escape in a path by its byte, represented as in raw-names.ts. */
export function withoutEscapes(path: string): string {
  if (!/\\x[\da-f]{2}/.test(path)) return path;
  const parts: Buffer[] = [];
  let begin = 0;
  for (const match of path.matchAll(ESCAPE)) {
    parts.push(nameBytes(path.slice(begin, match.index)), Buffer.from(match[1] ?? "", "hex"));
    begin = match.index + match[0].length;
  }
  return textOf(Buffer.concat([...parts, nameBytes(path.slice(begin))]));
}

/** Says how to write a relative path as an absolute one. */
export function absoluteForm(path: string, prefix = ""): string {
  if (path.startsWith("~")) return "only a shell expands ~; write the path of the home directory";
  return `a path in the sandbox is absolute, as in ${prefix}/${path.replace(/^(?:\.\/)+/, "")}`;
}

/** Parses the target of a tunnel: a port number or an absolute path. Throws UsageError, which quotes `given`. */
export function portOrPath(text: string, given: string): number | string {
  if (text.startsWith("/")) return text;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port >= 1 && port <= LAST_PORT) return port;
  throw new UsageError(
    `${given} is neither a port from 1 to ${LAST_PORT} nor an absolute path${text.includes(":") ? "; omit the host, which is always the sandbox" : ""}`,
  );
}

/** Returns the only name after a command's verb. Throws UsageError unless there is exactly one. */
export function oneName([name, ...more]: readonly string[], command: string): string {
  if (name === undefined || more.length > 0) throw new UsageError(`${command} requires one name`);
  return name;
}

/**
 * Returns the meaning of a fixed word of the command line. For any other word, throws UsageError, which lists the valid
 * words.
 */
export function parseWord<Meaning>(
  text: string | undefined,
  meanings: Readonly<Record<string, Meaning>>,
  what: string,
  hints: Hints = [],
): Meaning {
  const found = Object.entries(meanings).find(([word]) => word === text);
  if (found !== undefined) return found[1];
  const words = Object.keys(meanings);
  const meant = text === undefined ? undefined : nearest(text, words);
  const likely = meant === undefined ? undefined : `did you mean ${meant}?`;
  const advice = findHint(text ?? "", hints) ?? likely;
  const suggestion = advice === undefined ? "" : `; ${advice}`;
  throw new UsageError(`${what} must be ${words.slice(0, -1).join(", ")} or ${words.at(-1)}${suggestion}`);
}
