import { messageOf } from "../../shared/errors.ts";
import { GuestError, invalidOption } from "./errors/errors.ts";

/** Length of the longest token that the agent accepts. */
const TOKEN_LIMIT_CHARACTERS = 4096;
const UINT32_MAX = 0xffff_ffff;

/**
 * Returns the result of `make`. Converts any error that `make` throws into a GuestError (INVALID_ARGUMENT), so `make`
 * must fail only for invalid arguments of the caller.
 */
export function fromArguments<Value>(what: string, make: () => Value): Value {
  try {
    return make();
  } catch (error) {
    if (error instanceof GuestError) throw error;
    throw invalidOption(undefined, `${what}: ${messageOf(error)}`);
  }
}

/**
 * Removes white space around the token, such as the line break at the end of a token file. Throws GuestError if the
 * token is invalid: grpc-js would otherwise reject it with an error that contains the secret token.
 */
export function tokenOf(given: string): string {
  if (typeof given !== "string") throw invalidOption("token", "token is not a string; read its file as UTF-8");
  const token = given.trim();
  if (token === "") throw invalidOption("token", "token is empty");
  if (token.length > TOKEN_LIMIT_CHARACTERS)
    throw invalidOption("token", `token has more than ${TOKEN_LIMIT_CHARACTERS} characters`);
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw invalidOption(
      "token",
      "token may contain only visible ASCII characters without spaces; check that the right file was read",
    );
  }
  return token;
}

/** Rounds a duration up to whole milliseconds. Throws GuestError (INVALID_ARGUMENT). */
export function wholeMilliseconds(durationMs: number, field: string): number {
  const whole = Math.ceil(durationMs);
  if (typeof durationMs === "number" && whole >= 0 && Number.isSafeInteger(whole)) return whole;
  throw invalidOption(field, `${field} requires a number of milliseconds of 0 or more, not ${String(durationMs)}`);
}

/**
 * Converts a time limit to whole milliseconds, rounded up. Returns undefined if there is no limit, that is, for
 * undefined and for Infinity. Throws GuestError (INVALID_ARGUMENT).
 */
export function limitOf(durationMs: number | undefined, field: string): number | undefined {
  return durationMs === undefined || durationMs === Number.POSITIVE_INFINITY
    ? undefined
    : wholeMilliseconds(durationMs, field);
}

/**
 * Rounds a duration up to whole milliseconds. Throws GuestError (INVALID_ARGUMENT) if the result does not fit into a
 * field of 32 bits. The agent enforces a smaller limit.
 */
export function uint32Milliseconds(durationMs: number, field: string): number {
  return wholeNumber(wholeMilliseconds(durationMs, field), field);
}

/** Checks that a value is an integer from 0 to `largest`. Throws GuestError (INVALID_ARGUMENT). */
export function wholeNumber(value: number, field: string, largest: number = UINT32_MAX): number {
  if (Number.isInteger(value) && value >= 0 && value <= largest) return value;
  const required = `${field} requires a whole number`;
  const range = largest === UINT32_MAX ? `${required} of 0 or more` : `${required} from 0 to ${largest}`;
  throw invalidOption(field, `${range}, not ${String(value)}`);
}

/** Size of a terminal in characters. */
interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

/** Limit on the columns and rows of a terminal (struct winsize, ioctl_tty(2)). */
const LARGEST_SIZE = 65_535;

/**
 * Checks the size of a terminal. Throws GuestError (INVALID_ARGUMENT) unless `cols` and `rows` are integers from 0 to 65535.
 * In the error message, `prefix` precedes the name of the invalid number.
 */
export function terminalSize({ cols, rows }: TerminalSize, prefix: string = "terminal."): TerminalSize {
  wholeNumber(cols, `${prefix}cols`, LARGEST_SIZE);
  wholeNumber(rows, `${prefix}rows`, LARGEST_SIZE);
  return { cols, rows };
}

/**
 * Converts a byte offset to the bigint of a protobuf message; undefined stays undefined. Throws GuestError
 * (INVALID_ARGUMENT).
 */
export function offsetOf(bytes: number | undefined, field: string): bigint | undefined {
  if (bytes === undefined) return undefined;
  if (Number.isSafeInteger(bytes) && bytes >= 0) return BigInt(bytes);
  throw invalidOption(field, `${field} must be a whole number of bytes, 0 or more, not ${String(bytes)}`);
}

/**
 * Checks that the options are an object and that every option name is known. Without this check, a misspelt option
 * would be ignored silently.
 *
 * @param what name of the object in the error message, such as `options of run`
 * @throws GuestError INVALID_ARGUMENT, whose metadata has the `field`
 */
export function checkOptions(what: string, given: unknown, names: Readonly<Record<string, true>>): void {
  if (given === undefined) return;
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw invalidOption(undefined, `${what} must be an object`);
  }
  const field = Object.keys(given).find((name) => !Object.hasOwn(names, name));
  if (field === undefined) return;
  throw invalidOption(field, `there is no ${field} in ${what}; the known names are ${Object.keys(names).join(", ")}`);
}

/**
 * Throws GuestError (INVALID_ARGUMENT) unless the arguments are an array of strings. A plain string is not accepted,
 * because "ls" would be split into the arguments "l" and "s".
 */
export function checkArgs(args: unknown): void {
  const isList = Array.isArray(args) && args.every((argument) => typeof argument === "string");
  if (!isList) throw invalidOption("args", 'a command is an array of strings, such as ["ls", "-l"]');
  if (args.length === 0) throw invalidOption("args", "the command is empty: give its name and its arguments");
}

/**
 * Matches one half of a surrogate pair without the other half. UTF-8 cannot express it, so encoders silently replace
 * it.
 */
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Throws GuestError (INVALID_ARGUMENT) for text that encoding to UTF-8 would change. */
export function checkText(text: string, field: string): void {
  const at = text.search(LONE_SURROGATE);
  if (at >= 0)
    throw invalidOption(field, `${field} has half of a surrogate pair at index ${at}; UTF-8 cannot express it`);
}
