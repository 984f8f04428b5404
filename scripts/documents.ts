/**
 * Regenerates the generated tables of the documents: `npm run documents`. A table is between two comments of a page,
 * such as `<!-- begin: limits -->` and `<!-- end: limits -->`.
 */
import { writeFileSync } from "node:fs";
import { generatedDocuments } from "./documents/generated.ts";
import { runScript, words } from "./machine/script.ts";

await runScript("documents", "usage: npm run documents", () => {
  words(0);
  for (const [file, text] of generatedDocuments()) writeFileSync(file, text);
  return Promise.resolve(0);
});
