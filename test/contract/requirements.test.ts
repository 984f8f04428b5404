import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { requirements } from "./requirements.ts";

const TESTS = join(import.meta.dirname, "..");

for (const [section, rows] of Map.groupBy(requirements(), (each) => each.section)) {
  describe(section, () => {
    for (const { says, tests } of rows) {
      it(`the contract's sentence has a test: ${says}`, async () => {
        assert.ok(tests.length > 0);
        for (const [file, title] of tests) {
          const source = await readFile(join(TESTS, file), "utf8");
          // Of tests that are not skipped outright, up to the first placeholder.
          const titles = Array.from(source.matchAll(/\b(?:it|test)\(\s*(["'`])(.*?)\1,/g), ([, , text = ""]) => text);
          assert.ok(
            titles.some((of) => of.includes(title)),
            `${file}: no test "${title}"`,
          );
        }
      });
    }
  });
}
