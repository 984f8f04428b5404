import { execa } from "execa";
import { providePrograms } from "../machine/programs.ts";
import { type Check, complaintsOf, repositoryFiles, ROOT } from "./tool.ts";

/** What is linted and formatted. Generated code is neither. */
const FOLDERS = ["src", "scripts", "test"];

export const typescriptChecks: readonly Check[] = [
  { name: "types", run: () => complaintsOf("tsc", ["-p", "."]) },
  { name: "types of the oldest Node of the node side", run: () => complaintsOf("tsc", ["-p", "src/node"]) },
  { name: "lint", run: () => complaintsOf("oxlint", ["--deny-warnings", "--format=unix", ...FOLDERS]) },
  { name: "nothing unused (files, exports, packages; knip.jsonc)", run: () => complaintsOf("knip", []) },
  { name: "format (npm run format mends it)", run: () => complaintsOf("oxfmt", ["--check", ...FOLDERS]) },
];

/** More than the build asks for: gcc's analyser follows memory and descriptors through every path of a function. */
const FLAGS = [
  ..."-O2 -c -std=gnu11 -D_GNU_SOURCE= -Wall -Wextra -Werror -fanalyzer".split(" "),
  ..."-Wshadow -Wconversion -Wundef -Wvla -Wformat-security -Wstrict-prototypes -Wmissing-prototypes".split(" "),
  // Does not report Node's own headers.
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

/** Shell scripts, by name or by first line. */
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
