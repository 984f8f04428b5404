import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { REQUIREMENTS } from "./coverage.ts";

const TESTS = join(import.meta.dirname, "..");

/** Whether a file has a test of that title which is not skipped outright. */
async function hasTest(file: string, title: string): Promise<boolean> {
  const source = await readFile(join(TESTS, file), "utf8");
  return source.split("\n").some((line) => /\b(?:it|test)\(/.test(line) && line.includes(title));
}

for (const [section, requirements] of Object.entries(REQUIREMENTS)) {
  describe(`contract, ${section}`, () => {
    for (const { says, tests } of requirements) {
      it(`has a test for: ${says}`, async () => {
        assert.ok(tests.length > 0);
        for (const [file, title] of tests) assert.ok(await hasTest(file, title), `${file}: no test "${title}"`);
      });
    }
  });
}
