import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { execa } from "execa";
import { testFolder } from "../fixtures/files.ts";

const CASES = join(import.meta.dirname, "../../scripts/vm/cases.ts");
const IMPORTS = 'import { describe, test } from "node:test";';
const PASSING = `${IMPORTS} describe("Linux 6.12", () => test("boots", () => {}));`;

/** Runs files of these contents in a process of its own: the end of its output, and whether all passed. */
async function ran(...contents: readonly string[]): Promise<{ printed: string; last: string }> {
  await using folder = await testFolder();
  const files = contents.map((_, index) => join(folder.path, `${index}.mjs`));
  for (const [index, file] of files.entries()) await writeFile(file, contents[index] ?? "");
  const script = folder.at("run.mjs");
  await writeFile(
    script,
    `import { runCases } from ${JSON.stringify(CASES)};
    const isGood = await runCases({ files: ${JSON.stringify(files)}, concurrency: 2 });
    console.log(isGood);`,
  );
  const { stdout } = await execa(process.execPath, [script], { env: { NODE_TEST_CONTEXT: undefined } });
  return { printed: stdout, last: stdout.split("\n").slice(-2).join(", ") };
}

test("cases are counted, suites are not", async () => {
  assert.equal((await ran(PASSING)).last, "1 passed, 0 failed, 0 skipped, true");
});

test("a case that failed fails the run, and is named with its error at the end", async () => {
  const failing = `${IMPORTS} describe("Linux 6.1", () => test("clones", () => { throw new Error("too late"); }));`;
  const { printed, last } = await ran(PASSING, failing);
  assert.equal(last, "1 passed, 1 failed, 0 skipped, false");
  assert.match(printed, /failing tests:[^]*✖ clones[^]*too late/);
});

test("a file that does not load fails the run", async () => {
  assert.equal((await ran(PASSING, 'import "./absent.mjs";')).last, "1 passed, 1 failed, 0 skipped, false");
});

test("a skipped case fails the run; so does a run without any case", async () => {
  const skipped = `${IMPORTS} test("forks", (t) => t.skip("needs KVM"));`;
  assert.equal((await ran(PASSING, skipped)).last, "1 passed, 0 failed, 1 skipped, false");
  assert.equal((await ran()).last, "0 passed, 0 failed, 0 skipped, false");
});
