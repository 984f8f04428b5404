/**
 * Holds the whole repository to its rules: `npm run check`, or `npm run check -- lint types` for the checks whose names
 * hold these words. All run, whatever failed before.
 */
import { execaSync } from "execa";
import { type Check, ROOT } from "./checks/tool.ts";
import { repositoryChecks } from "./checks/repository.ts";
import { schemaChecks } from "./checks/schema.ts";
import { nativeChecks, typescriptChecks } from "./checks/sources.ts";
import { runScript, UsageError, words } from "./machine/script.ts";

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

/** Why checks of "the repository's files" cannot run; undefined: they can. */
function noRepository(): string | undefined {
  const { failed, exitCode } = execaSync("git", ["rev-parse"], { cwd: ROOT, reject: false });
  if (!failed) return undefined;
  return exitCode === undefined
    ? "needs git, which tells the files of the repository (Debian: apt-get install git)"
    : "needs a clone: git does not take this folder for one of its repositories (or for one of yours; see git status)";
}

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
