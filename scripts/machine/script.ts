import { parseArgs } from "node:util";
import { messageOf } from "../../src/shared/errors.ts";

/** Exit status for a wrong command line, from sysexits.h. */
const USAGE_STATUS = 64;

/** A wrong command line. The message names the argument and the problem. */
export class UsageError extends Error {}

/** Whether an error is a UsageError, or comes from node:util's parseArgs. */
function isMistake(error: unknown): boolean {
  if (error instanceof UsageError) return true;
  return error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS_");
}

/**
 * Calls back at each signal with which people and systems usually end a program. The program itself then decides when
 * it ends.
 */
export function onEndSignal(callback: (signal: NodeJS.Signals) => void): void {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, callback);
}

/**
 * Parses a whole number of 1 or more.
 *
 * @throws UsageError that names the argument
 */
export function countFrom(text: string, what: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new UsageError(`${what} is a whole number from 1 on, not "${text}"`);
  return Number(text);
}

/**
 * Returns the arguments of a script without options.
 *
 * @throws UsageError if there are more than `most` arguments, TypeError for an option
 */
export function words(most: number = Infinity): string[] {
  const { positionals } = parseArgs({ allowPositionals: true, options: {} });
  const tooMuch = positionals[most];
  if (tooMuch !== undefined) throw new UsageError(`"${tooMuch}" is an argument too many`);
  return positionals;
}

/**
 * Runs a script that a person starts. `--help` as the first argument prints the usage. An error is printed without its
 * stack. After a wrong command line the usage is printed too, and the exit status is 64.
 *
 * @param name name of the npm script
 * @param run resolves with the exit status; reads process.argv with parseArgs
 */
export async function runScript(name: string, usage: string, run: () => Promise<number>): Promise<void> {
  if (process.argv[2] === "--help" || process.argv[2] === "-h") {
    console.log(usage);
    return;
  }
  try {
    process.exitCode = await run();
  } catch (error) {
    console.error(`${name}: ${messageOf(error)}`);
    if (isMistake(error)) console.error(usage);
    process.exitCode = isMistake(error) ? USAGE_STATUS : 1;
  }
}
