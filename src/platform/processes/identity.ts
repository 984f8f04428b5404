import { fchownSync, fstatSync } from "node:fs";
import { isatty } from "node:tty";

import type { Identity } from "../../domain/index.ts";

/** Changing to it would change nothing. An agent without privileges may run commands as itself, but not call setgroups. */
export function isOwnIdentity(identity: Identity): boolean {
  /* Node adds the group id to the list of supplementary groups, so it counts as one on both sides. */
  const own = new Set(process.getgroups?.());
  const wanted = new Set([...identity.groups, identity.gid]);
  return (
    identity.uid === process.getuid?.() &&
    identity.gid === process.getgid?.() &&
    own.size === wanted.size &&
    [...own].every((group) => wanted.has(group))
  );
}

/**
 * Makes the user own the pipes and terminals among its standard streams, or it could not open /dev/stdout: that checks
 * the permissions of the pipe or terminal behind it. Files and devices stay as they are. Where it is not possible, the
 * streams work all the same.
 */
export function giveStreamsTo(uid: number, fds: readonly number[]): void {
  for (const fd of fds) {
    try {
      const stat = fstatSync(fd);
      if (stat.uid !== uid && (stat.isFIFO() || isatty(fd))) fchownSync(fd, uid, -1);
    } catch {
      continue;
    }
  }
}
