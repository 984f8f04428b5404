import { join } from "node:path";
import { execa } from "execa";

/** Runs a program of node_modules/.bin or the system in the project's folder. Resolves to its output if it failed. */
export async function complaintsOf(program: string, args: readonly string[]): Promise<string> {
  const result = await execa(program, args, { cwd: ROOT, preferLocal: true, localDir: ROOT, all: true, reject: false });
  if (!result.failed) return "";
  return [result.all?.trim(), result.shortMessage].find(Boolean) ?? `${program} failed`;
}

async function gitFiles(...options: readonly string[]): Promise<string[]> {
  const { stdout } = await execa("git", ["ls-files", ...options], { cwd: ROOT });
  return stdout.split("\n").filter((line) => line !== "");
}

/** The repository's files: those in git and new ones that git does not ignore. Paths from the project's folder. */
export async function repositoryFiles(): Promise<string[]> {
  const files = await gitFiles("--cached", "--others", "--exclude-standard", "--deduplicate");
  const deleted = new Set(await gitFiles("--deleted"));
  return files.filter((file) => !deleted.has(file));
}

/** A check of the whole repository. */
export interface Check {
  readonly name: string;
  /** Whether it needs git to list the repository's files. */
  readonly readsRepository?: true;
  /** Resolves with the problem and how to fix it; empty: none. */
  readonly run: () => Promise<string>;
}

/** The project's folder. */
export const ROOT: string = join(import.meta.dirname, "../..");
