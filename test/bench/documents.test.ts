import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { dataOf, documentsOf, readData } from "./report.ts";

test("the figures of README and performance.md are those of docs/performance.json", () => {
  for (const [file, text] of documentsOf(readData())) {
    assert.equal(readFileSync(file, "utf8"), text, `${file}: npm run bench -- --figures`);
  }
});

test("bench data is unchanged after it is written and read again", () => {
  const run = readData();
  assert.deepEqual(JSON.parse(dataOf(run)), run);
});
