import type { CommandSpec } from "../domain/index.ts";

const NUL = "\0";
/** Largest number of characters of a variable's name that a message shows. */
const SHOWN_NAME_CHARACTERS = 100;

/** A command as a caller specifies it. */
export type GivenCommand = Pick<CommandSpec, "args"> & Partial<CommandSpec>;

/**
 * Returns the fields of a command that the kernel could not accept, each with its problem but without its value. An
 * empty `args` is not reported, and `user` is not checked.
 *
 * @param path prefix of each field name: empty, or the path of the command with a dot at its end
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
    // The name is cut at '=': the rest is a value that was put into the name by mistake, and it may be a secret.
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
