import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { insertInto } from "../../scripts/bench/report/report.ts";

test("the figures take the place of those between the marks, and the rest of the file stays", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "bench-insert-"));
  t.after(() => rm(folder, { recursive: true }));
  const file = join(folder, "performance.md");
  assert.equal(insertInto(file, "new"), "new\n");
  await writeFile(file, "before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n");
  assert.equal(insertInto(file, "new"), "before\n<!-- figures -->\n\nnew\n\n<!-- end of figures -->\nafter\n");
});
