import { type Environment, lookup } from "./environment.ts";
import { AgentError } from "./errors.ts";
import { EXEC_STRINGS_LIMIT_BYTES } from "./limits.ts";

/** Where a command is looked for when the environment sets no PATH. The environment itself is left as it is. */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * Files to try for a command, in order, as execvp(3) does: the command itself when it contains a slash, else every entry
 * of the PATH that the child will have (an empty entry is the working directory). Throws AgentError where a long name in
 * each of many entries would be more than a command's arguments may be.
 */
export function commandCandidates(command: string, environment: Environment): Uint8Array[] {
  if (command.includes("/")) return [Buffer.from(command)];
  const path = Buffer.from(lookup(environment, "PATH") ?? Buffer.from(DEFAULT_PATH)).toString("latin1");
  const name = Buffer.from(command).toString("latin1");
  const folders = path.split(":");
  if (folders.length * name.length + path.length > EXEC_STRINGS_LIMIT_BYTES) throw tooManyFolders(folders.length);
  return folders.map((folder) => Buffer.from(`${folder === "" ? "." : folder}/${name}`, "latin1"));
}

function tooManyFolders(count: number): AgentError {
  const message = `args[0] is too long to be looked for in each of the ${count} folders of PATH; give its path`;
  const metadata = { limit: String(EXEC_STRINGS_LIMIT_BYTES) };
  return new AgentError("RESOURCE_EXHAUSTED", "EXEC_ARGS_TOO_LONG", message, metadata);
}
