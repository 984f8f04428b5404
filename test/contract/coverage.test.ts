import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { REQUIREMENTS } from "./coverage.ts";
import { PROMISES } from "./promises.ts";

const TESTS = join(import.meta.dirname, "..");

/** Titles of a file's tests that are not skipped outright, up to the first placeholder. */
async function titlesOf(file: string): Promise<string[]> {
  const source = await readFile(join(TESTS, file), "utf8");
  return [...source.matchAll(/\b(?:it|test)\(\s*(["'`])(.*?)\1,/g)].map(([, , title = ""]) => title);
}

for (const [section, requirements] of [
  ...Object.entries(REQUIREMENTS).map(([title, rows]) => [`contract, ${title}`, rows] as const),
  ...Object.entries(PROMISES).map(([title, rows]) => [`processes, ${title}`, rows] as const),
]) {
  describe(section, () => {
    for (const { says, tests } of requirements) {
      it(`has a test for: ${says}`, async () => {
        assert.ok(tests.length > 0);
        for (const [file, title] of tests) {
          const titles = await titlesOf(file);
          assert.ok(
            titles.some((of) => of.includes(title)),
            `${file}: no test "${title}"`,
          );
        }
      });
    }
  });
}
