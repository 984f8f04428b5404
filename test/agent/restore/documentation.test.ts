import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";

const ROOT = join(import.meta.dirname, "..", "..", "..");

it("docs/agent/operations.md says of every degraded token, and of no other, what it means and what to do", () => {
  const source = readFileSync(join(ROOT, "src/agent/restore/report.ts"), "utf8");
  const type = source.slice(source.indexOf("export type DegradedToken"));
  const ofCode = Array.from(type.matchAll(/^ {2}\| ["`](.+)["`];?$/gm), ([, token = ""]) =>
    token.replace("${Errno}", "ERRNO"),
  );
  const documentation = readFileSync(join(ROOT, "docs/agent/operations.md"), "utf8");
  const section = /^### degraded$[^]*?(?=^###? )/m.exec(documentation)?.[0] ?? "";
  const rows = Array.from(section.matchAll(/^\| `([^`]+)` \| (.+) \| (.+) \|$/gm), ([, token = ""]) => token);
  assert.ok(ofCode.length >= 12, "the tokens are found");
  assert.deepEqual(rows.toSorted(), ofCode.toSorted());
});
