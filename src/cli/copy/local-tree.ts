import type { Stats } from "node:fs";
import { lstat, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { CliError } from "../errors.ts";

/** A local file, directory, link or other thing below a directory that is being copied. */
export interface LocalEntry {
  /** Relative to the directory, with slashes; "" for the directory itself. */
  readonly name: string;
  readonly path: string;
  readonly stats: Stats;
}

/** Says of a local path what system calls say, in words. */
export function localFailure(path: string, error: unknown): CliError {
  const code = error instanceof Error && "code" in error ? String(error.code) : "failed";
  const problem = code === "ENOENT" ? "no such file or directory" : code;
  return new CliError(`${path}: ${problem} on this machine`);
}

/** Attributes of a local path, links followed. Throws CliError. */
export async function localStat(path: string): Promise<Stats> {
  return stat(path).catch((error: unknown) => {
    throw localFailure(path, error);
  });
}

/** Everything in a directory, itself first, parents before what is in them, by name; links are not followed. */
export async function* localTree(root: string, name = ""): AsyncGenerator<LocalEntry> {
  const path = name === "" ? root : join(root, name);
  const stats = name === "" ? await localStat(path) : await lstat(path);
  yield { name, path, stats };
  if (!stats.isDirectory()) return;
  for (const child of (await readdir(path)).toSorted()) {
    yield* localTree(root, name === "" ? child : `${name}/${child}`);
  }
}
