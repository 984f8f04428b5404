import { constants } from "node:os";

/** An error of guestctl itself. The message says what is wrong and what to do. */
export class CliError extends Error {
  override readonly name: string = "CliError";
}

/** Thrown for an invalid command line. */
export class UsageError extends CliError {
  override readonly name = "UsageError";
}

/**
 * Exit statuses of guestctl. `exec` uses the exit statuses of docker and of the shell, so that a script can tell a
 * failure of guestctl from a failure of the command.
 */

/**
 * Exit status if guestctl carried out the command, but the result is not as intended: the sandbox is degraded or not
 * ready, or some entries were skipped or not removed.
 */
export const STATUS_NOT_AS_INTENDED = 1;
/** Exit status of `sandbox` if the operation succeeded, but clones may share random numbers, keys or secrets. */
export const STATUS_NOT_ISOLATED = 3;
/** Exit status if the command reached the limit of `--timeout`, as in timeout(1). */
export const STATUS_TIMED_OUT = 124;
/**
 * Exit status if guestctl itself failed, for example because of a wrong command line, a missing connection or an error
 * of the agent.
 */
export const STATUS_FAILED = 125;
/** Exit status if the command exists but cannot be run. */
export const STATUS_CANNOT_RUN = 126;
/** Exit status if the command does not exist. */
export const STATUS_NOT_FOUND = 127;
/** Exit status if `rsh` itself fails; the same as that of ssh(1). */
export const STATUS_RSH_FAILED = 255;

/** Exit status of a process that was terminated by a signal. */
export function signalStatus(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}
