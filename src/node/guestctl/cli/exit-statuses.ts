import { wrap } from "../../../shared/text.ts";
import {
  STATUS_CANNOT_RUN,
  STATUS_FAILED,
  STATUS_NOT_AS_INTENDED,
  STATUS_NOT_FOUND,
  STATUS_NOT_ISOLATED,
  STATUS_RSH_FAILED,
  STATUS_TIMED_OUT,
} from "./errors.ts";

/** Every exit status of guestctl with its meaning. docs/node/guestctl.md has the same table. */
export const EXIT_STATUSES: readonly (readonly [status: string, meaning: string])[] = [
  ["0", 'guestctl succeeded. For "health", the sandbox is ready. For "exec" and "hook", the command exited with 0.'],
  [
    String(STATUS_NOT_AS_INTENDED),
    'A part of the work failed. Examples: "health" found the sandbox not ready; "restore" or "restore-sequence" could not complete every step; "cp" skipped entries; "rm" left entries; "ls" could not read an entry; "sandbox" did not complete everything. Every command exits with 1 if it cannot write to standard output, for example because a disk is full. A guest\'s clock is a failure if it is off by a second for "sandbox", or by more than 100 ms for "restore-sequence".',
  ],
  [
    String(STATUS_NOT_ISOLATED),
    '"sandbox" completed the operation, but isolation is not guaranteed: forks may share random numbers, keys or secrets.',
  ],
  [
    String(STATUS_TIMED_OUT),
    'For "exec", "attach" and "hook", the command reached the limit of --timeout and was ended.',
  ],
  [
    String(STATUS_FAILED),
    'The command line is invalid, the connection failed, or guestctl or the agent reported an error. guestctl also exits with 125 if you disconnect by "~.", or if another "attach" takes over the command.',
  ],
  [String(STATUS_CANNOT_RUN), 'For "exec", the command exists but cannot be executed.'],
  [String(STATUS_NOT_FOUND), 'For "exec", the command does not exist.'],
  [
    "128 + n",
    'For "exec", "attach", "rsh" and "hook", signal n ended the command. For other commands of guestctl, signal n ended guestctl.',
  ],
  ["141", "The program that reads guestctl's output has closed the pipe."],
  [
    String(STATUS_RSH_FAILED),
    '"rsh" itself failed. Other commands exit with 125 in this case; "rsh" exits with 255, because ssh does.',
  ],
];

const INDENT = 10;
const WIDTH = 110;

/** The help topic "guestctl help exit-status". */
export const EXIT_STATUS_HELP: string = `Exit statuses

Any other status of "exec", "attach" and "rsh" is that of the command in the sandbox.

${EXIT_STATUSES.map(statusText).join("\n")}
`;

function statusText([status, meaning]: readonly [status: string, meaning: string]): string {
  const [first = "", ...rest] = wrap(meaning, WIDTH - INDENT);
  return [`  ${status.padEnd(INDENT - 2)}${first}`, ...rest.map((line) => " ".repeat(INDENT) + line)].join("\n");
}
