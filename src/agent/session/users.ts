import { type Accounts, AgentError, type Identity, within } from "../domain/index.ts";
import { comparable } from "./environment.ts";

/** A user of the image, with all that is needed to run a process as that user. */
export interface ResolvedUser {
  readonly identity: Identity;
  /** Name in /etc/passwd. Undefined for a user id without an entry. */
  readonly name: string | undefined;
  /** Absolute path of the home directory; "/" if /etc/passwd has no such path for the user. */
  readonly home: string;
  /** Login shell. Undefined if /etc/passwd has no shell for the user. */
  readonly shell: string | undefined;
}

/** Largest user or group id: 2^31 - 1, as in moby. This excludes (uid_t)-1, which the kernel does not accept. */
const MAX_ID = 2 ** 31 - 1;

interface PasswdEntry {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
  readonly shell: string;
}

interface GroupEntry {
  readonly name: string;
  readonly gid: number;
  readonly members: readonly string[];
}

/**
 * Resolves `user`, `uid`, `user:group` or `uid:gid` by the rules of moby:
 *
 * - A number always means an id. An id without an entry is accepted, with primary group 0. A name requires an entry. The
 *   first matching entry is used.
 * - Supplementary groups of /etc/group are used only if no group is specified. `user:` is the same as `user`.
 * - Names are compared byte for byte. Malformed lines are ignored, and a missing file counts as empty.
 *
 * One difference: `:group` is rejected, because a missing name is not a request for root. In moby it means user id 0.
 *
 * The primary group is also included in the supplementary groups: without it, the process could open files that deny
 * access to that group (CVE-2022-36109).
 *
 * @param passwd bytes of /etc/passwd (passwd(5))
 * @param group bytes of /etc/group (group(5))
 * @throws AgentError with reason EXEC_BAD_USER: INVALID_ARGUMENT for a malformed spec, NOT_FOUND for an unknown name
 */
export function resolveUser(spec: string, passwd: Uint8Array, group: Uint8Array): ResolvedUser {
  const problem = userSyntaxProblem(spec);
  if (problem !== undefined) throw new AgentError("INVALID_ARGUMENT", "EXEC_BAD_USER", `user ${problem}`);
  const [userPart = "", groupPart = ""] = spec.split(":");
  const entry = findUser(userPart, passwd);
  const uid = entry?.uid ?? Number(userPart);
  const { gid, supplementary } = findGroups(groupPart, entry, group);
  return {
    identity: { uid, gid, groups: [...new Set([gid, ...supplementary])] },
    name: entry === undefined ? undefined : text(entry.name),
    home: entry?.home.startsWith("/") === true ? text(entry.home) : "/",
    shell: entry === undefined || entry.shell === "" ? undefined : text(entry.shell),
  };
}

/** Longest wait for /etc/passwd if a user name is needed only to be shown. The file may be on a file system that hangs. */
const NAME_WAIT_MS = 1_000;

/**
 * Name of a user id in /etc/passwd. Resolves with undefined if the id has no name, or if the file cannot be read. Never
 * rejects.
 */
export async function userName(accounts: Pick<Accounts, "passwd">, uid: number): Promise<string | undefined> {
  try {
    const found: { entries?: readonly PasswdEntry[] } = {};
    const reading = async (): Promise<void> => void (found.entries = passwdEntries(await accounts.passwd()));
    await within(reading(), NAME_WAIT_MS);
    const entry = found.entries?.find((each) => each.uid === uid);
    return entry && text(entry.name);
  } catch {
    return undefined;
  }
}

/** Describes what is malformed in a user spec; undefined if it is well-formed. Does not check whether the names exist. */
export function userSyntaxProblem(spec: string): string | undefined {
  if (/[\0\n]/.test(spec)) return "contains a NUL or a line break";
  const parts = spec.split(":");
  if (spec.startsWith(":")) return "has no name before the colon; use user, uid, user:group or uid:gid";
  if (parts.length > 2) return "has more than one colon; use user, uid, user:group or uid:gid";
  for (const part of parts) {
    if (/^-?[0-9]+$/.test(part) && idOf(part) === undefined) return `has an id that is not from 0 to ${MAX_ID}`;
  }
  return undefined;
}

function findUser(wanted: string, passwd: Uint8Array): PasswdEntry | undefined {
  const uid = idOf(wanted);
  const name = comparable(wanted);
  const entry = passwdEntries(passwd).find((candidate) =>
    uid === undefined ? candidate.name === name : candidate.uid === uid,
  );
  if (entry === undefined && uid === undefined) {
    throw unknown("user", wanted, "/etc/passwd");
  }
  return entry;
}

function findGroups(
  wanted: string,
  user: PasswdEntry | undefined,
  group: Uint8Array,
): { gid: number; supplementary: readonly number[] } {
  if (wanted === "") {
    if (user === undefined) return { gid: 0, supplementary: [] };
    const memberships = groupEntries(group).filter((candidate) => candidate.members.includes(user.name));
    return { gid: user.gid, supplementary: memberships.map((candidate) => candidate.gid) };
  }
  const name = comparable(wanted);
  const gid = idOf(wanted) ?? groupEntries(group).find((candidate) => candidate.name === name)?.gid;
  if (gid === undefined) throw unknown("group", wanted, "/etc/group");
  return { gid, supplementary: [] };
}

function passwdEntries(passwd: Uint8Array): PasswdEntry[] {
  return records(passwd).flatMap(([name = "", , uidField = "", gidField = "", , home = "", shell = ""]) => {
    const uid = idOf(uidField);
    const gid = idOf(gidField);
    return name === "" || uid === undefined || gid === undefined ? [] : [{ name, uid, gid, home, shell }];
  });
}

function groupEntries(group: Uint8Array): GroupEntry[] {
  return records(group).flatMap(([name = "", , gidField = "", members = ""]) => {
    const gid = idOf(gidField);
    return name === "" || gid === undefined ? [] : [{ name, gid, members: members.split(",") }];
  });
}

/** The fields of each line. Each byte is decoded as one character, because names need not be UTF-8. */
function records(file: Uint8Array): string[][] {
  const lines = Buffer.from(file.buffer, file.byteOffset, file.byteLength).toString("latin1").split("\n");
  return lines.filter((line) => !line.startsWith("#")).map((line) => line.split(":"));
}

/** The id in a field. Undefined unless the field is a plain decimal number in range. */
function idOf(field: string): number | undefined {
  if (!/^[0-9]+$/.test(field)) return undefined;
  const id = Number(field);
  return id <= MAX_ID ? id : undefined;
}

function text(bytes: string): string {
  return Buffer.from(bytes, "latin1").toString();
}

function unknown(kind: "user" | "group", name: string, file: string): AgentError {
  const message = `no ${kind} ${JSON.stringify(name)} in ${file} of the sandbox; use another name or a numeric id`;
  return new AgentError("NOT_FOUND", "EXEC_BAD_USER", message, { [kind]: name });
}
