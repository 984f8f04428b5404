import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { dataOf, documentsOf, HEADLINES, readData } from "./report.ts";

test("the figures of README and performance.md are those of docs/performance.json", () => {
  for (const [file, text] of documentsOf(readData())) {
    assert.equal(readFileSync(file, "utf8"), text, `${file}: npm run bench -- --publish`);
  }
});

test("the data file has every row that the README shows", () => {
  const measured = new Set(readData().rows.map(({ name }) => name));
  assert.deepEqual(
    HEADLINES.filter((name) => !measured.has(name)),
    [],
  );
});

test("a run survives its way through the data file", () => {
  const run = readData();
  assert.deepEqual(JSON.parse(dataOf(run)), run);
});
