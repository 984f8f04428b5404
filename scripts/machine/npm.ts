import { delimiter } from "node:path";

/**
 * PATH for npm and for the machine's own Node. npm puts the project's packages first there, and so their Node; Debian's
 * npm has its parts where only Debian's Node finds them.
 */
export function machinePath(): string {
  const folders = process.env["PATH"]?.split(delimiter) ?? [];
  return folders.filter((folder) => !folder.split("/").includes("node_modules")).join(delimiter);
}
