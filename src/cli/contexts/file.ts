import { randomBytes } from "node:crypto";
import { mkdir, open, realpath, rename, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { CliError } from "../errors.ts";
import type { Contexts } from "./context.ts";
import { formatContexts, parseContexts } from "./format.ts";

const NO_CONTEXTS: Contexts = { byName: new Map() };

/** Where the contexts of a user are (XDG Base Directory Specification: a relative folder does not count). */
export function contextsPath(env: NodeJS.ProcessEnv): string {
  const { XDG_CONFIG_HOME: configured = "", HOME: home } = env;
  const folder = isAbsolute(configured) ? configured : join(home ?? homedir(), ".config");
  return join(folder, "guestctl", "contexts.json");
}

/** Reads the contexts of a user; none without the file. Throws CliError for one that is broken or not to be trusted. */
export async function readContexts(path: string): Promise<Contexts> {
  const text = await readTrusted(path);
  if (text === undefined) return NO_CONTEXTS;
  try {
    return parseContexts(text);
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    throw new CliError(`${path} is broken: ${problem}; correct it, or remove it and set the contexts anew`);
  }
}

/** Replaces the contexts of a user in one step. The file is mode 0600, a new folder 0700. */
export async function writeContexts(path: string, contexts: Contexts): Promise<void> {
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    // Where the file is a link, what it leads to is replaced.
    const target = await realpath(path).catch(() => path);
    const temporary = `${target}.${randomBytes(4).toString("hex")}`;
    await writeFile(temporary, formatContexts(contexts), { mode: 0o600, flag: "wx" });
    await rename(temporary, target);
  } catch (error) {
    throw new CliError(`cannot write ${path} (${errnoOf(error)}); check the folder's owner and mode`);
  }
}

/** A bridge is a command that guestctl runs: whoever may write the file may run commands as its reader. */
async function readTrusted(path: string): Promise<string | undefined> {
  let file;
  try {
    file = await open(path, "r");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw new CliError(`cannot read ${path} (${errnoOf(error)}); check its owner and mode`);
  }
  try {
    const { mode, uid } = await file.stat();
    if ((mode & 0o022) !== 0)
      throw new CliError(`others may write ${path}; look at what it says, then: chmod 600 ${path}`);
    if (uid !== 0 && uid !== process.getuid?.())
      throw new CliError(`${path} belongs to another user; make one of your own`);
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

function errnoOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "unknown error";
}
