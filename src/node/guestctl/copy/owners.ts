import { readFile } from "node:fs/promises";
import type { GuestClient } from "../../client/index.ts";
import type { Owners } from "../../tar/index.ts";
import { CliError, UsageError } from "../cli/index.ts";
import { isReason } from "./guest-paths.ts";

/** `USER`, `USER:GROUP`, `USER:` or `:GROUP`, as in chown(1); names or numbers. */
export interface Chown {
  readonly user: string;
  /** The group. Undefined if none is given, and an empty text for the login group of the user. */
  readonly group: string | undefined;
}

/** The side that receives the files. Names of users and groups are looked up there. */
interface Destination {
  readonly what: string;
  /** Reads a file; undefined if it does not exist. */
  readonly read: (path: string) => Promise<string | undefined>;
  readonly isRoot: () => Promise<boolean>;
}

/** Limit on the bytes that are read of /etc/passwd or /etc/group, because a sandbox may send endless content. */
const DATABASE_BYTES = 16 * 1024 * 1024;
const LAST_OWNER = 2 ** 32 - 2;

/**
 * Parses the value of --chown, or the owner argument of `chown`. Throws UsageError.
 *
 * @param what name of the option or argument in the error message
 */
export function parseChown(text: string, what = "--chown"): Chown {
  const [, user = "", colon, group = ""] = /^([^:]*)(?:(:)([^:]*))?$/.exec(text) ?? [];
  if (user === "" && group === "")
    throw new UsageError(`${what} requires USER, USER:GROUP or :GROUP, as names or numbers`);
  return { user, group: colon === undefined ? undefined : group };
}

/** Determines the owners of the copied files. Throws CliError for a name that does not exist at the destination. */
export async function ownersFor(
  chown: Chown | undefined,
  keepsOwners: boolean,
  destination: Destination,
): Promise<Owners> {
  // As in cp -a, only root tries to change owners, because other users cannot.
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

/** Returns the fields of the line that has this name or id (passwd(5), group(5)). */
async function entryOf({ what, read }: Destination, path: string, name: string): Promise<readonly string[]> {
  const text = await read(path);
  if (text === undefined) throw new CliError(`${path} does not exist ${what}; give numeric ids`);
  const isNumber = /^\d+$/.test(name);
  const fields = text
    .split("\n")
    .map((line) => line.split(":"))
    .find((each) => each[isNumber ? 2 : 0] === name);
  if (fields === undefined || !/^\d+$/.test(fields[2] ?? ""))
    throw new CliError(`${path} ${what} has no entry ${JSON.stringify(name)}; give a numeric id`);
  return fields;
}

export const LOCAL_ACCOUNTS: Destination = {
  what: "on this machine",
  read: (path) => readFile(path, "utf8").catch(() => undefined),
  isRoot: async () => process.getuid?.() === 0,
};

export function guestAccounts(client: GuestClient): Destination {
  const ifThere = (error: unknown): undefined => {
    if (!isReason(error, "PATH_NOT_FOUND")) throw error;
  };
  return {
    what: "in the sandbox",
    read: (path) => client.files.readFile(path, { length: DATABASE_BYTES, encoding: "utf8" }).catch(ifThere),
    // The owner of /proc/self is the agent's user. Without /proc, assume root: if that is wrong, the agent reports the
    // changes that it is not allowed to make.
    isRoot: async () => ((await client.files.stat("/proc/self").catch(ifThere))?.uid ?? 0) === 0,
  };
}
