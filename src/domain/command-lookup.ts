import { type Environment, lookup } from "./environment.ts";

/** Where a command is looked for when the environment sets no PATH. The environment itself is left as it is. */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * Files to try for a command, in order, as execvp(3) does: the command itself when it contains a slash, else every entry
 * of the PATH that the child will have (an empty entry is the working directory).
 */
export function commandCandidates(command: string, environment: Environment): Uint8Array[] {
  if (command.includes("/")) return [Buffer.from(command)];
  const path = Buffer.from(lookup(environment, "PATH") ?? Buffer.from(DEFAULT_PATH)).toString("latin1");
  const name = Buffer.from(command).toString("latin1");
  return path.split(":").map((folder) => Buffer.from(`${folder === "" ? "." : folder}/${name}`, "latin1"));
}
