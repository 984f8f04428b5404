import { type Accounts, type FileOwner, type FilePath, FileSystemError, type FileTree } from "../domain/index.ts";
import { resolveUser } from "../session/index.ts";

/** Mode of a folder whose new entries get its group (inode(7)). */
export const SETGID = 0o2000;

/**
 * Who files belong to that the session creates: the workload's user, looked up afresh every time; with no user the
 * agent's own identity.
 */
export function sessionOwner(accounts: Accounts, user: string, own: FileOwner): () => Promise<FileOwner> {
  return async () => {
    if (user === "") return own;
    const [passwd, group] = await Promise.all([accounts.passwd(), accounts.group()]);
    const { uid, gid } = resolveUser(user, passwd, group).identity;
    return { uid, gid };
  };
}

/** The group that the folder gives to its new entries, where it says so; undefined also for one that cannot be looked at. */
export async function groupOfEntries(fileSystem: FileTree, folder: FilePath): Promise<number | undefined> {
  try {
    const { mode, gid } = await fileSystem.stat(folder, false);
    return (mode & SETGID) === 0 ? undefined : gid;
  } catch (error) {
    // Whoever goes on to make the entry finds out, and says what it is about.
    if (error instanceof FileSystemError) return undefined;
    throw error;
  }
}
