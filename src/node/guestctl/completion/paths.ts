import { type GuestClient, GuestError } from "../../client/index.ts";

/** Nobody waits longer for the Tab key. */
const PATIENCE_MS = 2_000;

/**
 * The paths of the sandbox that begin with a prefix, folders with a slash at their end, as the workload's user sees them; none
 * where the folder or the image's ls is missing. Rejects with GuestError.
 */
export async function guestPaths(client: GuestClient, prefix: string): Promise<string[]> {
  const start = prefix === "" ? "/" : prefix;
  if (!start.startsWith("/")) return [];
  const folder = start.slice(0, start.lastIndexOf("/") + 1);
  const begun = start.slice(folder.length);
  const listed = await client
    .run({ args: ["ls", "-1Ap", folder] }, undefined, { deadlineMs: PATIENCE_MS })
    .catch((error: unknown) => {
      if (error instanceof GuestError && error.reason === "EXEC_NOT_FOUND") return undefined;
      throw error;
    });
  const names = listed?.stdout.toString("utf8").split("\n") ?? [];
  // As with files here: hidden ones only for those who have typed the dot.
  const isOffered = (name: string): boolean =>
    name !== "" && name.startsWith(begun) && (begun !== "" || !name.startsWith("."));
  return names.filter(isOffered).map((name) => `${folder}${name}`);
}
