import { nearest } from "../../shared/text.ts";
import { hintForCommand, type Host, hintForLeadingOption, reportFailure, UsageError } from "./cli/index.ts";
import { COMMANDS } from "./commands/index.ts";

/** Reports a command line without a valid command, and what was probably meant. Returns the exit status. */
export function reportUnknown(
  name: string | undefined,
  leading: readonly string[],
  isForPrograms: boolean,
  host: Host,
): number {
  return reportFailure(new UsageError(problemOf(name, leading)), isForPrograms, host);
}

function problemOf(name: string | undefined, leading: readonly string[]): string {
  if (name === undefined) return "no command given";
  if (name.startsWith("-")) {
    const meant = nearest(
      name,
      [...leading, "--help", "--version"].filter((option) => option.startsWith("--")),
    );
    const likely = meant === undefined ? "the options of a command follow its name" : `did you mean ${meant}?`;
    return `unknown option ${JSON.stringify(name)} before the command; ${hintForLeadingOption(name) ?? likely}`;
  }
  const advice = hintForCommand(name) ?? likelyCommand(name) ?? programOf(name);
  return `unknown command ${JSON.stringify(name)}${advice === undefined ? "" : `; ${advice}`}`;
}

/** Suggests "guestctl exec", because the unknown word may be a program in the sandbox, and users often forget "exec". */
function programOf(name: string): string | undefined {
  return /^[\w.+-]+$/.test(name)
    ? `"guestctl exec -- ${name}" runs a program of that name in a sandbox, "guestctl --help" lists the commands`
    : undefined;
}

function likelyCommand(name: string): string | undefined {
  const meant = nearest(name, COMMANDS.keys());
  return meant === undefined ? undefined : `did you mean ${meant}?`;
}
