import { readFile } from "node:fs/promises";
import type { GuestClient } from "../../client/index.ts";
import type { Owners } from "../../tar/index.ts";
import { CliError, UsageError } from "../cli/index.ts";
import { isReason } from "./guest-paths.ts";

/** `USER`, `USER:GROUP`, `USER:` or `:GROUP`, as of chown(1); names or numbers. */
export interface Chown {
  readonly user: string;
  /** Undefined: the group is not said; empty: the user's own. */
  readonly group: string | undefined;
}

/** The side that gets the files, whose names of users count. */
interface Destination {
  readonly what: string;
  /** Content of a file; undefined: there is none. */
  readonly read: (path: string) => Promise<string | undefined>;
  readonly isRoot: () => Promise<boolean>;
}

/** More is no list of users, and a sandbox may send content without end. */
const DATABASE_BYTES = 16 * 1024 * 1024;
const LAST_OWNER = 2 ** 32 - 2;

/** Reads the value of --chown, or the owner of `chown`. Throws UsageError, which names `what` was given. */
export function parseChown(text: string, what = "--chown"): Chown {
  const [, user = "", colon, group = ""] = /^([^:]*)(?:(:)([^:]*))?$/.exec(text) ?? [];
  if (user === "" && group === "")
    throw new UsageError(`${what} requires USER, USER:GROUP or :GROUP, as names or numbers`);
  return { user, group: colon === undefined ? undefined : group };
}

/** The owners that a copy gives. Throws CliError for a name that the destination does not have. */
export async function ownersFor(
  chown: Chown | undefined,
  keepsOwners: boolean,
  destination: Destination,
): Promise<Owners> {
  // As with cp -a: whoever is not root cannot give files away, and does not try.
  const keepOwners = keepsOwners && (await destination.isRoot());
  if (chown === undefined) return { keepOwners };
  const { user, group } = chown;
  const passwd = async (): Promise<readonly string[]> => entryOf(destination, "/etc/passwd", user);
  const uid = user === "" ? undefined : (numberOf(user) ?? Number((await passwd())[2]));
  if (group === undefined) return { keepOwners, uid };
  if (group !== "")
    return { keepOwners, uid, gid: numberOf(group) ?? Number((await entryOf(destination, "/etc/group", group))[2]) };
  return { keepOwners, uid, gid: Number((await passwd())[3]) };
}

function numberOf(name: string): number | undefined {
  if (!/^\d+$/.test(name)) return undefined;
  const number = Number(name);
  if (number > LAST_OWNER) throw new UsageError(`the id ${name} is more than ${LAST_OWNER}`);
  return number;
}

/** The fields of the line of a name, or of a uid (passwd(5), group(5)). */
async function entryOf({ what, read }: Destination, path: string, name: string): Promise<readonly string[]> {
  const text = await read(path);
  if (text === undefined) throw new CliError(`there is no ${path} ${what}; give numeric ids`);
  const isNumber = /^\d+$/.test(name);
  const fields = text
    .split("\n")
    .map((line) => line.split(":"))
    .find((each) => each[isNumber ? 2 : 0] === name);
  if (fields === undefined || !/^\d+$/.test(fields[2] ?? ""))
    throw new CliError(`${path} ${what} has no ${JSON.stringify(name)}; give its id`);
  return fields;
}

/** This machine. */
export const HERE: Destination = {
  what: "on this machine",
  read: (path) => readFile(path, "utf8").catch(() => undefined),
  isRoot: async () => process.getuid?.() === 0,
};

/** The sandbox. */
export function thereOf(client: GuestClient): Destination {
  const ifThere = (error: unknown): undefined => {
    if (!isReason(error, "PATH_NOT_FOUND")) throw error;
  };
  return {
    what: "in the sandbox",
    read: (path) => client.readFile(path, { length: DATABASE_BYTES }).text().catch(ifThere),
    // The agent's own process belongs to its user. Without /proc it is taken for root, and says what it may not do.
    isRoot: async () => ((await client.statPath("/proc/self").catch(ifThere))?.uid ?? 0) === 0,
  };
}
