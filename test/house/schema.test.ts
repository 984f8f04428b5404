import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { incompatibilities } from "../../scripts/check.ts";

const ROOT = join(import.meta.dirname, "../..");

/** A copy of the schema with one text of one file replaced. */
function changedSchema(t: TestContext, file: string, from: string | RegExp, to: string): string {
  const directory = mkdtempSync(join(tmpdir(), "schema-"));
  t.after(() => rmSync(directory, { recursive: true }));
  for (const name of ["proto", "buf.yaml"]) cpSync(join(ROOT, name), join(directory, name), { recursive: true });
  const path = join(directory, "proto/svc/guest/v1alpha1", file);
  const text = readFileSync(path, "utf8");
  const changed = text.replace(from, to);
  assert.notEqual(changed, text);
  writeFileSync(path, changed);
  return directory;
}

describe("released schemas", () => {
  test("the schema check accepts an added field", async (t) => {
    const more = "google.protobuf.Timestamp idle_declared = 6;\n  string mood = 1000;";
    const grown = changedSchema(t, "health.proto", "google.protobuf.Timestamp idle_declared = 6;", more);
    assert.equal(await incompatibilities(grown), "");
  });

  for (const [what, file, from, to, complaint] of [
    ["a deleted field", "health.proto", /^ {2}int32 ready_cmd_exit = 3;$/m, "", /field "3".*deleted/],
    ["a field of another type", "exec.proto", "int32 code = 1", "int64 code = 1", /changed type/],
  ] as const) {
    test(`the schema check rejects ${what}`, async (t) => {
      assert.match(await incompatibilities(changedSchema(t, file, from, to)), complaint);
    });
  }
});
