import { GuestError, invalidArgument, messageOf } from "./errors.ts";

/** Longest token that the agent takes. */
const TOKEN_LIMIT_CHARACTERS = 4096;
const UINT32_MAX = 0xffff_ffff;

/**
 * Runs `make`, which must depend on the caller's arguments alone. Turns any error of it, packages throw all kinds, into a
 * GuestError (INVALID_ARGUMENT).
 */
export function fromArguments<Value>(what: string, make: () => Value): Value {
  try {
    return make();
  } catch (error) {
    if (error instanceof GuestError) throw error;
    throw invalidArgument(`${what}: ${messageOf(error)}`);
  }
}

/**
 * The instance token without the line break at the end of its file. Throws GuestError (INVALID_ARGUMENT) for one that
 * cannot be sent: grpc-js would refuse it too, with a message that shows it.
 */
export function tokenOf(given: string): string {
  if (typeof given !== "string") throw invalidArgument("token is no text; read its file as UTF-8");
  const token = given.trim();
  if (token === "") throw invalidArgument("token is empty");
  if (token.length > TOKEN_LIMIT_CHARACTERS)
    throw invalidArgument(`token has more than ${TOKEN_LIMIT_CHARACTERS} characters`);
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw invalidArgument("token may hold visible ASCII characters only, and no spaces; is it the right file?");
  }
  return token;
}

/** A duration in whole milliseconds, rounded up. Throws GuestError (INVALID_ARGUMENT). */
export function wholeMilliseconds(durationMs: number, field: string): number {
  const whole = Math.ceil(durationMs);
  if (typeof durationMs === "number" && whole >= 0 && Number.isSafeInteger(whole)) return whole;
  throw invalidArgument(`${field} wants a number of milliseconds from 0 up, not ${String(durationMs)}`);
}

/** A whole number that 32 bits hold. Throws GuestError (INVALID_ARGUMENT). */
export function wholeNumber(value: number, field: string): number {
  if (Number.isInteger(value) && value >= 0 && value <= UINT32_MAX) return value;
  throw invalidArgument(`${field} wants a whole number from 0 up, not ${String(value)}`);
}
