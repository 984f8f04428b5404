import { wholeNumber } from "../arguments.ts";
import { GuestError } from "../errors.ts";

/**
 * Signals by the numbers that they have in the guest, which is a Linux on x86 or Arm (signal(7)): this side may have
 * others.
 */
const NUMBERS = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGKILL: 9,
  SIGUSR1: 10,
  SIGSEGV: 11,
  SIGUSR2: 12,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
  SIGCHLD: 17,
  SIGCONT: 18,
  SIGSTOP: 19,
  SIGTSTP: 20,
  SIGTTIN: 21,
  SIGTTOU: 22,
  SIGURG: 23,
  SIGXCPU: 24,
  SIGXFSZ: 25,
  SIGVTALRM: 26,
  SIGPROF: 27,
  SIGWINCH: 28,
  SIGIO: 29,
  SIGPWR: 30,
  SIGSYS: 31,
} as const;

/** The name of a signal, such as "SIGTERM". */
export type SignalName = keyof typeof NUMBERS;

/** The number that a signal has in the guest. Throws GuestError (INVALID_ARGUMENT) for what is none. */
export function signalNumber(signal: number | SignalName): number {
  if (typeof signal === "number") return wholeNumber(signal, "signal");
  const number: number | undefined = Object.hasOwn(NUMBERS, signal) ? NUMBERS[signal] : undefined;
  if (number !== undefined) return number;
  const message = `${JSON.stringify(signal)} is no signal; give a name such as SIGTERM, or a number`;
  throw new GuestError({ status: "INVALID_ARGUMENT", message });
}
