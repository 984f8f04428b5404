import { type Accounts, type FileOwner, type FilePath, FileSystemError, type FileTree } from "../domain/index.ts";
import { resolveUser } from "../session/index.ts";

/** Mode of a folder whose new entries get its group (inode(7)). */
export const SETGID = 0o2000;

/**
 * Owner of files that the session creates: the workload's user, looked up every time; without a user the agent's own
 * identity.
 */
export function sessionOwner(accounts: Accounts, user: string, own: FileOwner): () => Promise<FileOwner> {
  return async () => {
    if (user === "") return own;
    const [passwd, group] = await Promise.all([accounts.passwd(), accounts.group()]);
    const { uid, gid } = resolveUser(user, passwd, group).identity;
    return { uid, gid };
  };
}

/** The group that a setgid folder gives to its new entries; undefined for other folders, and where stat(2) fails. */
export async function groupOfEntries(fileSystem: FileTree, folder: FilePath): Promise<number | undefined> {
  try {
    const { mode, gid } = await fileSystem.stat(folder, false);
    return (mode & SETGID) === 0 ? undefined : gid;
  } catch (error) {
    // Creating the entry will fail too, with an error that says why.
    if (error instanceof FileSystemError) return undefined;
    throw error;
  }
}
