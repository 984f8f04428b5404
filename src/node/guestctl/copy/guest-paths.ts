import { posix } from "node:path";
import { nameOf } from "../cli/index.ts";
import { type GuestClient, GuestError, type FileStat } from "../../client/index.ts";

/** Attributes of a path in the sandbox; undefined if it does not exist. */
export async function statIfThere(client: GuestClient, remote: string): Promise<FileStat | undefined> {
  return client.files.stat(nameOf(remote)).catch((error: unknown) => {
    if (isReason(error, "PATH_NOT_FOUND")) return undefined;
    throw error;
  });
}

/** Whether the kernel generates the file. Such files report a size of 0 or 4096, whatever their content. */
export function isGenerated(path: string): boolean {
  return /^\/+(?:proc|sys)\//.test(path);
}

/** Whether an error comes from the agent and has this reason. */
export function isReason(error: unknown, reason: string): boolean {
  return error instanceof GuestError && error.reason === reason;
}

/** Returns the path if it exists, otherwise its nearest ancestor that exists. */
export async function existingDirectory(client: GuestClient, remote: string): Promise<string> {
  let directory = remote;
  while (directory !== "/" && (await statIfThere(client, directory)) === undefined)
    directory = posix.dirname(directory);
  return directory;
}
