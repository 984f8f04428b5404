import { delimiter } from "node:path";

/**
 * PATH for running npm with the machine's own Node. `npm run` puts the project's packages first in PATH, and they
 * include a Node. But Debian's npm finds its own modules only if Debian's Node runs it.
 */
export function machinePath(): string {
  const directories = process.env["PATH"]?.split(delimiter) ?? [];
  return directories.filter((directory) => !directory.split("/").includes("node_modules")).join(delimiter);
}
