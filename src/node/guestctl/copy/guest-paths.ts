import { posix } from "node:path";
import { nameOf } from "../cli/index.ts";
import { type GuestClient, GuestError, type PathAttributes } from "../../client/index.ts";

/** Attributes of a path in the sandbox; undefined if it does not exist. */
export async function statIfThere(client: GuestClient, remote: string): Promise<PathAttributes | undefined> {
  return client.statPath(nameOf(remote)).catch((error: unknown) => {
    if (isReason(error, "PATH_NOT_FOUND")) return undefined;
    throw error;
  });
}

/** Files that the kernel generates report a size of 0 or 4096, whatever they hold. */
export function isGenerated(path: string): boolean {
  return /^\/+(?:proc|sys)\//.test(path);
}

/** Whether the error is the agent's, with that status. */
export function isReason(error: unknown, reason: string): boolean {
  return error instanceof GuestError && error.reason === reason;
}

/** The path, or the nearest folder above it that exists. */
export async function existingFolder(client: GuestClient, remote: string): Promise<string> {
  let folder = remote;
  while (folder !== "/" && (await statIfThere(client, folder)) === undefined) folder = posix.dirname(folder);
  return folder;
}
