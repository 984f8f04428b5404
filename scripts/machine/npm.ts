import { delimiter } from "node:path";

/**
 * PATH for npm, with the machine's own Node. `npm run` puts the project's packages, including their Node, first in
 * PATH; but Debian's npm finds its own modules only with Debian's Node.
 */
export function machinePath(): string {
  const directories = process.env["PATH"]?.split(delimiter) ?? [];
  return directories.filter((directory) => !directory.split("/").includes("node_modules")).join(delimiter);
}
