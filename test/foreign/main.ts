/**
 * Runs suites that others wrote, unchanged, against the agent and the node side: `npm run foreign`, or `npm run foreign
 * -- h2spec` for some of them. Ends with a table and the line `N passed, N failed, N skipped`.
 */
import { judge, tableOf, type Verdict } from "./verdict.ts";
import { SUITES } from "./suites.ts";
import { runScript, UsageError, words } from "../../scripts/machine/script.ts";
import { isContained, runContained } from "../../scripts/testing/contained.ts";

const USAGE = `usage: npm run foreign [-- SUITE...]
${SUITES.map(({ name, about }) => `  ${name.padEnd(20)} ${about}`).join("\n")}`;

await runScript("foreign", USAGE, async () => {
  const asked = words();
  const unknown = asked.find((word) => !SUITES.some(({ name }) => name === word));
  if (unknown !== undefined) throw new UsageError(`there is no suite "${unknown}"`);
  if (!isContained()) return runContained(import.meta.filename, asked);
  const verdicts: Verdict[] = [];
  for (const suite of SUITES) {
    if (asked.length > 0 && !asked.includes(suite.name)) continue;
    console.log(`--- ${suite.name}: ${suite.about}`);
    // A suite that every machine of CI can install has to run there.
    const verdict = await judge(suite, process.env["CI"] === "true");
    for (const problem of verdict.problems) console.log(`✖ ${problem}`);
    verdicts.push(verdict);
  }
  const { lines, succeeded } = tableOf(verdicts);
  for (const line of lines) console.log(line);
  return succeeded ? 0 : 1;
});
