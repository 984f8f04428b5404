/**
 * Holds the whole repository to its rules: `npm run check`, or `npm run check -- lint types` for the checks whose names
 * hold these words. All run, whatever failed before.
 */
import type { Check } from "./checks/check.ts";
import { nativeChecks } from "./checks/native.ts";
import { repositoryChecks } from "./checks/repository.ts";
import { schemaChecks } from "./checks/schema.ts";
import { typescriptChecks } from "./checks/typescript.ts";

const ALL: readonly Check[] = [...typescriptChecks, ...nativeChecks, ...schemaChecks, ...repositoryChecks];

async function complaintOf(check: Check): Promise<string> {
  try {
    return await check.run();
  } catch (error) {
    return String(error);
  }
}

async function passes(check: Check): Promise<boolean> {
  const began = performance.now();
  const complaint = await complaintOf(check);
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  console.log(`${complaint === "" ? "✔" : "✖"} ${check.name} (${seconds} s)`);
  if (complaint !== "") console.log(`${complaint.trimEnd()}\n`);
  return complaint === "";
}

const words = process.argv.slice(2);
const chosen = ALL.filter(({ name }) => words.length === 0 || words.some((word) => name.includes(word)));
const failed: string[] = [];
for (const check of chosen) if (!(await passes(check))) failed.push(check.name);
if (chosen.length === 0) failed.push(`no check is named like ${words.join(", ")}`);
console.log(failed.length === 0 ? `${chosen.length} checks passed` : `FAILED: ${failed.join("; ")}`);
process.exitCode = failed.length === 0 ? 0 : 1;
