import { type Accounts, type FileOwner, resolveUser } from "../domain/index.ts";

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
