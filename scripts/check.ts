/**
 * Checks the whole repository: `npm run check`, or `npm run check -- lint types` for the checks whose names contain
 * these words. All selected checks run, even after a failure.
 */
import { globSync, mkdtempDisposableSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa, execaSync } from "execa";
import { LICENCE_FILE, licenceTable } from "./licences.ts";
import { providePrograms } from "./machine/programs.ts";
import { runScript, UsageError, words } from "./machine/script.ts";
import { KEPT } from "./release/keep.ts";

/** The directory of the project. */
export const ROOT: string = join(import.meta.dirname, "..");

/**
 * Runs a program of node_modules/.bin or of the system in the project's directory. Resolves with its output if it
 * failed, otherwise with an empty text.
 */
export async function complaintsOf(program: string, args: readonly string[]): Promise<string> {
  const result = await execa(program, args, { cwd: ROOT, preferLocal: true, localDir: ROOT, all: true, reject: false });
  if (!result.failed) return "";
  return [result.all?.trim(), result.shortMessage].find(Boolean) ?? `${program} failed`;
}

async function gitFiles(...options: readonly string[]): Promise<string[]> {
  const { stdout } = await execa("git", ["ls-files", ...options], { cwd: ROOT });
  return stdout.split("\n").filter((line) => line !== "");
}

/**
 * The files of the repository: those in git, and new ones that git does not ignore. Paths are relative to the project's
 * directory.
 */
export async function repositoryFiles(): Promise<string[]> {
  const files = await gitFiles("--cached", "--others", "--exclude-standard", "--deduplicate");
  const deleted = new Set(await gitFiles("--deleted"));
  return files.filter((file) => !deleted.has(file));
}

/** A check of the whole repository. */
export interface Check {
  readonly name: string;
  /** The check needs git to list the files of the repository. */
  readonly readsRepository?: true;
  /** Resolves with the problems and how to fix them; empty if there are none. */
  readonly run: () => Promise<string>;
}

/** Directories that are linted and formatted, except for generated code. */
const DIRECTORIES = ["src", "scripts", "test"];

export const typescriptChecks: readonly Check[] = [
  { name: "types", run: () => complaintsOf("tsc", ["-p", "."]) },
  { name: "types of the oldest Node of the node side", run: () => complaintsOf("tsc", ["-p", "src/node"]) },
  { name: "lint", run: () => complaintsOf("oxlint", ["--deny-warnings", "--format=unix", ...DIRECTORIES]) },
  { name: "nothing unused (files, exports, packages; knip.jsonc)", run: () => complaintsOf("knip", []) },
  { name: "format (npm run format mends it)", run: () => complaintsOf("oxfmt", ["--check", ...DIRECTORIES]) },
];

/**
 * Turns on more warnings than the build does. gcc's analyser checks memory and file descriptors on every path through a
 * function.
 */
const FLAGS = [
  ..."-O2 -c -std=gnu11 -D_GNU_SOURCE= -Wall -Wextra -Werror -fanalyzer".split(" "),
  ..."-Wshadow -Wconversion -Wundef -Wvla -Wformat-security -Wstrict-prototypes -Wmissing-prototypes".split(" "),
  // Suppresses warnings about Node's own headers.
  "-isystem",
  `node_modules/node-linux-${process.arch}/include/node`,
];

async function compileAll(): Promise<string> {
  const sources = (await repositoryFiles()).filter((file) => file.endsWith(".c"));
  if (sources.length === 0) return "found no C file: the search is broken";
  const complaints = await Promise.all(
    sources.map((source) => complaintsOf("gcc", [...FLAGS, "-o", "/dev/null", source])),
  );
  return complaints.filter(Boolean).join("\n");
}

/** Finds the shell scripts by their first line. */
async function shellScripts(): Promise<string[]> {
  const { stdout } = await execa("git", ["grep", "--untracked", "-lIE", "^#!.*\\b(ba|da)?sh$"], {
    cwd: ROOT,
    reject: false,
  });
  return stdout.split("\n").filter((file) => file !== "" && !file.endsWith(".md"));
}

async function checkShell(): Promise<string> {
  const missing = providePrograms([{ name: "shellcheck", package: "shellcheck" }], "to check shell scripts");
  if (missing.length > 0) return "no shellcheck: install it (Debian, Ubuntu: apt-get install shellcheck)";
  const scripts = await shellScripts();
  if (!scripts.includes("scripts/run")) return "did not find scripts/run: the search is broken";
  return complaintsOf("shellcheck", ["--external-sources", ...scripts]);
}

export const nativeChecks: readonly Check[] = [
  { name: "C warnings and analysis", readsRepository: true, run: compileAll },
  { name: "shell", readsRepository: true, run: checkShell },
];

/** Finds changes of the schema that would break clients of a released version. compat/ contains every released schema. */
export async function incompatibilities(directory: string): Promise<string> {
  const snapshots = globSync(`compat/*/${KEPT.schema}`, { cwd: ROOT });
  if (snapshots.length === 0) return "no released schema in compat/";
  const complaints = await Promise.all(
    snapshots.map(async (snapshot) => {
      const complaint = await complaintsOf("buf", ["breaking", directory, "--against", join(ROOT, snapshot)]);
      return complaint && `against ${snapshot}:\n${complaint}`;
    }),
  );
  return complaints.filter(Boolean).join("\n");
}

const GENERATED = "src/shared/gen";

/** Generates the code into another directory and compares it. */
async function generated(): Promise<string> {
  using directory = mkdtempDisposableSync(join(tmpdir(), "generated-"));
  const complaint = await complaintsOf("buf", ["generate", "-o", directory.path]);
  if (complaint !== "") return complaint;
  const differences = await complaintsOf("diff", ["-r", join(directory.path, GENERATED), GENERATED]);
  return differences && `${differences}\n${GENERATED} is not what the schema gives: npm run generate`;
}

export const schemaChecks: readonly Check[] = [
  { name: "schema lint", run: () => complaintsOf("buf", ["lint"]) },
  {
    name: "schema format (buf format -w mends it)",
    run: () => complaintsOf("buf", ["format", "--diff", "--exit-code"]),
  },
  { name: "schema compatibility", run: () => incompatibilities(ROOT) },
  { name: "generated code", run: generated },
];

/** Names of one machine, which files of the repository must not contain. */
const MACHINE_TRACES: readonly { readonly pattern: RegExp; readonly what: string }[] = [
  { pattern: /(?<![\w.$-])\/(?:root|Users\/[\w.-]+|home\/[\w.-]+)\/[\w.-]+/, what: "a path in someone's home" },
  {
    pattern: /\b(?:registry|mirror|artifactory|nexus|verdaccio)[\w-]*\.[\w-]+\.\w+/i,
    what: "a package registry's host",
  },
  { pattern: /"resolved": "https?:/, what: "a package registry's address" },
];

/** Finds names of a machine, or the path of this checkout, in a text. */
function machineTraces(file: string, text: string, checkout: string): string[] {
  return text.split("\n").flatMap((line, index) => {
    const found = MACHINE_TRACES.filter(({ pattern }) => pattern.test(line)).map(({ what }) => what);
    if (line.includes(`${checkout}/`)) found.push("the path of this checkout");
    return found.map((what) => `${file}:${index + 1} names ${what}`);
  });
}

async function noTraces(): Promise<string> {
  const files = (await repositoryFiles()).filter((file) => !file.includes("/gen/"));
  if (files.length < 50) return "found too few files: the search is broken";
  return files.flatMap((file) => machineTraces(file, readFileSync(join(ROOT, file), "utf8"), ROOT)).join("\n");
}

function licencesCurrent(): string {
  const current = readFileSync(join(ROOT, LICENCE_FILE), "utf8");
  return current === licenceTable(ROOT) ? "" : `${LICENCE_FILE} does not match package-lock.json: npm run licences`;
}

/** Words that have a plainer or a standard replacement. Names on the wire, such as NOT_A_FOLDER, do not match. */
const UNCLEAR_WORDS: readonly { readonly pattern: RegExp; readonly use: string }[] = [
  { pattern: /(?<!-)\bfolders?\b/i, use: "directory" },
  { pattern: /\bwhoever\b/i, use: "the client, the caller, the process that …" },
  { pattern: /(?<!there )\b(?:is|are|be) no (?!longer\b|more\b)/i, use: "is not a, must be a" },
  { pattern: /\bleads? (?:to|into|nowhere)\b/i, use: "refers to, forwards to, routes to" },
  { pattern: /\b(?:anew|for good|in vain|in force)\b/i, use: "again, permanently, without effect, in use" },
  { pattern: /\b(?:hang|hangs) up on\b|\blet in\b/i, use: "disconnect, terminate, authenticate" },
  { pattern: /\bin the way\b/i, use: "conflicting" },
  { pattern: /\b(?:kin|ghosts?|rooms? and floors?)\b/i, use: "descendants, orphaned record, modules and layers" },
  { pattern: /\bsurely\b/i, use: "probably, or nothing" },
  { pattern: /\b(?:is|are|was|were) told\b/i, use: "is reported, receives" },
  { pattern: /\bgives? it\b/i, use: "forwards, passes" },
  { pattern: /\b(?:wants|strikes)\b/i, use: "requires, expects, occurs" },
];

/** Matches a comment or a string in a line of TypeScript or C, as far as a single line shows it. */
const PROSE = /(?:^\s*\*|\/\*\*?|\/\/) (.*)|"((?:[^"\\]|\\.)* (?:[^"\\]|\\.)*)"|`([^`]* [^`]*)`/g;

/** Finds unclear words in the comments and messages of a source file. */
export function unclearWords(file: string, text: string): string[] {
  return text.split("\n").flatMap((line, index) => {
    const prose = Array.from(line.matchAll(PROSE), ([whole]) => whole).join(" ");
    const found = UNCLEAR_WORDS.filter(({ pattern }) => pattern.test(prose));
    return found.map(({ pattern, use }) => `${file}:${index + 1} has "${pattern.exec(prose)?.[0]}"; use: ${use}`);
  });
}

async function clearWords(): Promise<string> {
  const files = (await repositoryFiles()).filter((file) => /^src\/(?!shared\/gen\/).*\.(?:ts|c|h)$/.test(file));
  if (files.length < 50) return "found too few files: the search is broken";
  return files.flatMap((file) => unclearWords(file, readFileSync(join(ROOT, file), "utf8"))).join("\n");
}

export const repositoryChecks: readonly Check[] = [
  { name: "words of comments and messages (src)", readsRepository: true, run: clearWords },
  { name: "no trace of a machine", readsRepository: true, run: noTraces },
  { name: "licences of dependencies", run: async () => licencesCurrent() },
];

const ALL: readonly Check[] = [...typescriptChecks, ...nativeChecks, ...schemaChecks, ...repositoryChecks];

const USAGE = `usage: npm run check [-- WORD...]
  WORD   only the checks whose names hold it; of: ${ALL.map(({ name }) => name).join(", ")}`;

async function passes(check: Check): Promise<boolean> {
  const began = performance.now();
  const complaint = await check.run().catch(String);
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  console.log(`${complaint === "" ? "✔" : "✖"} ${check.name} (${seconds} s)`);
  if (complaint !== "") console.log(`${complaint.trimEnd()}\n`);
  return complaint === "";
}

/** Why checks that read the repository's files cannot run; undefined if they can. */
function noRepository(): string | undefined {
  const { failed, exitCode } = execaSync("git", ["rev-parse"], { cwd: ROOT, reject: false });
  if (!failed) return undefined;
  return exitCode === undefined
    ? "needs git, which tells the files of the repository (Debian: apt-get install git)"
    : "needs a clone: git does not take this directory for one of its repositories (or for one of yours; see git status)";
}

if (import.meta.main) {
  await runScript("check", USAGE, async () => {
    const asked = words();
    const unknown = asked.find((word) => !ALL.some(({ name }) => name.includes(word)));
    if (unknown !== undefined) throw new UsageError(`no check is named like "${unknown}"`);
    const chosen = ALL.filter(({ name }) => asked.length === 0 || asked.some((word) => name.includes(word)));
    const reason = chosen.some(({ readsRepository }) => readsRepository) ? noRepository() : undefined;
    if (reason !== undefined) throw new Error(reason);
    const failed: string[] = [];
    for (const check of chosen) if (!(await passes(check))) failed.push(check.name);
    console.log(failed.length === 0 ? `${chosen.length} checks passed` : `FAILED: ${failed.join("; ")}`);
    return failed.length === 0 ? 0 : 1;
  });
}
