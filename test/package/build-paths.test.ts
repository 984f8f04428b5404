import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { buildPathsIn } from "../../scripts/package/inspect.ts";

function isIn(text: string, folder: string): boolean {
  return buildPathsIn(Buffer.from(text), [folder]).length > 0;
}

describe("the build machine's paths in what is shipped", () => {
  it("are found at the end of a string, before a file's name, and in a URL of a file", () => {
    for (const text of [
      "/project",
      "\0/project\0",
      "at /project/src/main.c:3",
      '"/project/x"',
      "file:///project/src/x.ts",
      "gcc -O2 -I/project/include",
    ]) {
      assert.ok(isIn(text, "/project"), text);
    }
    assert.ok(isIn("\u00ff\0/bau/größe/x", "/bau/größe"));
    assert.ok(isIn("\0/builder/.cache/a", "/builder/"));
  });

  it("are not the same letters inside another path, name or address", () => {
    for (const text of [
      "https://example.com/project/licence",
      "/projects",
      "/srv/project/x",
      "project",
      "/project-2",
    ]) {
      assert.ok(!isIn(text, "/project"), text);
    }
  });

  it("are taken as they are, not as a pattern", () => {
    assert.ok(!isIn("/axb/c", "/a.b"));
    assert.ok(isIn("/a+b(1)/c", "/a+b(1)"));
  });
});
