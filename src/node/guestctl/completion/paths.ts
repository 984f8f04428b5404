import { FileType, type GuestClient } from "../../client/index.ts";

/** Nobody waits longer for the Tab key. */
const PATIENCE_MS = 2_000;

/** The paths of the sandbox that begin with a prefix, folders with a slash at their end. Rejects with GuestError. */
export async function guestPaths(client: GuestClient, prefix: string): Promise<string[]> {
  const start = prefix === "" ? "/" : prefix;
  if (!start.startsWith("/")) return [];
  const folder = start.slice(0, start.lastIndexOf("/") + 1);
  const begun = start.slice(folder.length);
  const paths: string[] = [];
  for await (const { name, type } of client.list(folder, { deadlineMs: PATIENCE_MS })) {
    // As with local files: hidden ones only after a typed dot.
    if (!name.startsWith(begun) || (begun === "" && name.startsWith("."))) continue;
    paths.push(`${folder}${name}${type === FileType.DIRECTORY ? "/" : ""}`);
  }
  return paths;
}
