import type { CommandSpec } from "../domain/index.ts";

const NUL = "\0";
/** Most characters of a variable's name that a fault shows. */
const SHOWN_NAME_CHARACTERS = 100;

/** A command as somebody gives it. */
export type GivenCommand = Pick<CommandSpec, "args"> & Partial<CommandSpec>;

/**
 * Fields of a command that the kernel could not take, and what is wrong with each; never a value. An empty `args` is
 * none, and `user` is not looked at.
 *
 * @param path of the command, before its fields: empty, or with a dot at its end
 */
export function* commandFaults(
  path: string,
  { args, env = new Map<string, string>(), cwd = "" }: GivenCommand,
): Generator<readonly [field: string, problem: string], undefined> {
  if (args[0] === "") yield [`${path}args[0]`, "must not be empty: it names the command to run"];
  for (const [index, argument] of args.entries())
    if (argument.includes(NUL)) yield [`${path}args[${index}]`, "contains a NUL byte"];
  for (const [name, value] of env) {
    const problem = variableProblem(name, value);
    if (problem === undefined) continue;
    // Cut at '=': what follows is a value that slipped in, and may be a secret.
    const shown = JSON.stringify(name.split("=", 1)[0]?.slice(0, SHOWN_NAME_CHARACTERS));
    yield [`${path}env[${shown}]`, problem];
  }
  if (cwd !== "" && !cwd.startsWith("/")) yield [`${path}cwd`, "must be an absolute path"];
  if (cwd.includes(NUL)) yield [`${path}cwd`, "contains a NUL byte"];
}

function variableProblem(name: string, value: string): string | undefined {
  if (name === "") return "has an empty name";
  if (name.includes("=")) return "has a name that contains '='";
  if (name.includes(NUL)) return "has a name that contains a NUL byte";
  return value.includes(NUL) ? "contains a NUL byte" : undefined;
}
