import { randomBytes } from "node:crypto";
import { mkdir, open, realpath, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { errnoOf, messageOf } from "../../shared/errors.ts";
import { CliError } from "./errors.ts";

/** An agent's address and credentials, saved under a name. */
export interface Context {
  /** `HOST:PORT` or `unix:PATH`. Either this or `bridge`. */
  readonly address?: string | undefined;
  /** A shell command whose standard input and output lead to the agent. */
  readonly bridge?: string | undefined;
  /** Absolute path of a credential folder. */
  readonly credentials: string;
  readonly serverName?: string | undefined;
}

/** All contexts of a user. */
export interface Contexts {
  /** Name of the default context; it may have been removed. */
  readonly current?: string | undefined;
  readonly byName: ReadonlyMap<string, Context>;
}

/** Whether the name is valid for a context. */
export function isContextName(name: string): boolean {
  return /^[\w][\w.-]*$/.test(name);
}

const NO_CONTEXTS: Contexts = { byName: new Map() };

/** guestctl's folder among the user's (XDG Base Directory Specification: a relative one does not count). */
export function userFolder(
  env: NodeJS.ProcessEnv,
  variable: "XDG_CONFIG_HOME" | "XDG_STATE_HOME",
  usual: string,
): string {
  const configured = env[variable] ?? "";
  return join(isAbsolute(configured) ? configured : join(env["HOME"] ?? homedir(), usual), "guestctl");
}

/** Path of the user's contexts. */
export function contextsPath(env: NodeJS.ProcessEnv): string {
  return join(userFolder(env, "XDG_CONFIG_HOME", ".config"), "contexts.json");
}

/** Reads the user's contexts; none without the file. Throws CliError if it is invalid or others may write it. */
export async function readContexts(path: string): Promise<Contexts> {
  const text = await readTrusted(path);
  if (text === undefined) return NO_CONTEXTS;
  try {
    return parseContexts(text);
  } catch (error) {
    throw new CliError(`${path} is broken: ${messageOf(error)}; correct it, or remove it and set the contexts anew`);
  }
}

/** Replaces the contexts of a user in one step. The file is mode 0600, a new folder 0700. */
export async function writeContexts(path: string, contexts: Contexts): Promise<void> {
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    // Replaces the target if the file is a link.
    const target = await realpath(path).catch(() => path);
    const temporary = `${target}.${randomBytes(4).toString("hex")}`;
    const text = JSON.stringify({ current: contexts.current, contexts: contextsObject(contexts) }, undefined, 2);
    try {
      await writeFile(temporary, `${text}\n`, { mode: 0o600, flag: "wx" });
      await rename(temporary, target);
    } finally {
      await rm(temporary, { force: true });
    }
  } catch (error) {
    throw new CliError(
      `cannot write ${path} (${errnoOf(error) ?? "unknown error"}); check the folder's owner and mode`,
    );
  }
}

/** A bridge is a command that guestctl runs: everybody who may write the file could run commands as its reader. */
async function readTrusted(path: string): Promise<string | undefined> {
  try {
    await using file = await open(path, "r");
    const { mode, uid } = await file.stat();
    if ((mode & 0o022) !== 0)
      throw new CliError(`others may write ${path}; look at what it says, then: chmod 600 ${path}`);
    if (uid !== 0 && uid !== process.getuid?.())
      throw new CliError(`${path} belongs to another user; make one of your own`);
    return await file.readFile("utf8");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    if (error instanceof CliError) throw error;
    throw new CliError(`cannot read ${path} (${errnoOf(error) ?? "unknown error"}); check its owner and mode`);
  }
}

/** Names of a context's fields in the file. */
const FIELDS = ["address", "bridge", "credentials", "server_name"] as const;

/** Reads the text of a contexts file. Throws Error that says which field is wrong. */
function parseContexts(text: string): Contexts {
  const root = objectOf(JSON.parse(text), "the whole of it", ["current", "contexts"]);
  const { current, contexts = {} } = root;
  if (current !== undefined && typeof current !== "string") throw new Error("current is no text");
  const entries = Object.entries(objectOf(contexts, "contexts"));
  return { current, byName: new Map(entries.map(([name, value]) => [name, parseContext(name, value)])) };
}

/** The contexts by name, as they are in the file and in JSON output. */
export function contextsObject({ byName }: Contexts): object {
  const entries = Array.from(byName, ([name, { serverName, ...rest }]) => [name, { ...rest, server_name: serverName }]);
  return Object.fromEntries(entries) as object;
}

function parseContext(name: string, value: unknown): Context {
  const at = `contexts.${name}`;
  if (!isContextName(name)) throw new Error(`${JSON.stringify(name)} is no name for a context`);
  const fields = objectOf(value, at, FIELDS);
  for (const [field, content] of Object.entries(fields)) {
    if (typeof content !== "string" || content === "") throw new Error(`${at}.${field} is no text`);
  }
  const { address, bridge, credentials, server_name: serverName } = fields as Partial<Record<string, string>>;
  if ((address === undefined) === (bridge === undefined)) throw new Error(`${at} wants either address or bridge`);
  if (credentials === undefined) throw new Error(`${at}.credentials is missing`);
  if (!isAbsolute(credentials)) throw new Error(`${at}.credentials is no absolute path`);
  return { address, bridge, credentials, serverName };
}

/** @param known names that the object may have; any without it */
function objectOf(value: unknown, what: string, known?: readonly string[]): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`${what} is no object`);
  const unknown = Object.keys(value).find((key) => known !== undefined && !known.includes(key));
  if (unknown !== undefined) throw new Error(`${what} has an unknown field ${JSON.stringify(unknown)}`);
  return value as Readonly<Record<string, unknown>>;
}
