import { messageOf } from "../../shared/errors.ts";
import { GuestError, invalidOption } from "./errors.ts";

/** Longest token that the agent takes. */
const TOKEN_LIMIT_CHARACTERS = 4096;
const UINT32_MAX = 0xffff_ffff;

/** Runs `make`, which depends on the arguments alone. Turns any error into a GuestError (INVALID_ARGUMENT). */
export function fromArguments<Value>(what: string, make: () => Value): Value {
  try {
    return make();
  } catch (error) {
    if (error instanceof GuestError) throw error;
    throw invalidOption(undefined, `${what}: ${messageOf(error)}`);
  }
}

/** The token without its file's line break. Throws GuestError where it cannot be sent; grpc-js's would show it. */
export function tokenOf(given: string): string {
  if (typeof given !== "string") throw invalidOption("token", "token is not text; read its file as UTF-8");
  const token = given.trim();
  if (token === "") throw invalidOption("token", "token is empty");
  if (token.length > TOKEN_LIMIT_CHARACTERS)
    throw invalidOption("token", `token has more than ${TOKEN_LIMIT_CHARACTERS} characters`);
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw invalidOption("token", "token may hold visible ASCII characters only, and no spaces; is it the right file?");
  }
  return token;
}

/** A duration in whole milliseconds, rounded up. Throws GuestError (INVALID_ARGUMENT). */
export function wholeMilliseconds(durationMs: number, field: string): number {
  const whole = Math.ceil(durationMs);
  if (typeof durationMs === "number" && whole >= 0 && Number.isSafeInteger(whole)) return whole;
  throw invalidOption(field, `${field} requires a number of milliseconds from 0 up, not ${String(durationMs)}`);
}

/** A whole number, by default one that 32 bits hold. Throws GuestError (INVALID_ARGUMENT). */
export function wholeNumber(value: number, field: string, largest: number = UINT32_MAX): number {
  if (Number.isInteger(value) && value >= 0 && value <= largest) return value;
  const range = largest === UINT32_MAX ? "from 0 up" : `from 0 to ${largest}`;
  throw invalidOption(field, `${field} requires a whole number ${range}, not ${String(value)}`);
}

/** A number of bytes as messages have it; undefined: none is given. Throws GuestError (INVALID_ARGUMENT). */
export function offsetOf(bytes: number | undefined, field: string): bigint | undefined {
  if (bytes === undefined) return undefined;
  if (Number.isSafeInteger(bytes) && bytes >= 0) return BigInt(bytes);
  throw invalidOption(field, `${field} requires a whole number of bytes from 0 up, not ${String(bytes)}`);
}

/**
 * Refuses a value that is not an object of options, and unknown names: a misspelt option would be ignored silently.
 *
 * @param what the caller's name for it, such as `options of run`
 * @throws GuestError INVALID_ARGUMENT, whose metadata has the `field`
 */
export function checkOptions(what: string, given: unknown, names: Readonly<Record<string, true>>): void {
  if (given === undefined) return;
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw invalidOption(undefined, `${what} must be an object`);
  }
  const field = Object.keys(given).find((name) => !Object.hasOwn(names, name));
  if (field === undefined) return;
  throw invalidOption(field, `there is no ${field} in ${what}; there are ${Object.keys(names).join(", ")}`);
}

/** Refuses all but arrays of strings: `args: "ls"` would become `l` and `s`. Throws GuestError (INVALID_ARGUMENT). */
export function checkArgs(args: unknown): void {
  const isList = Array.isArray(args) && args.every((argument) => typeof argument === "string");
  if (!isList) throw invalidOption("args", 'args want a list of texts, such as ["ls", "-l"]');
  if (args.length === 0) throw invalidOption("args", "args are empty; name the command to run");
}

/** Half of a surrogate pair, which UTF-8 cannot express: encoders replace it silently. */
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Throws GuestError (INVALID_ARGUMENT) for text that would arrive as another one. */
export function checkText(text: string, field: string): void {
  const at = text.search(LONE_SURROGATE);
  if (at >= 0)
    throw invalidOption(field, `${field} has half of a surrogate pair at index ${at}; UTF-8 cannot express it`);
}
