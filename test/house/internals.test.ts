import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const ROOT = join(import.meta.dirname, "../..");
const INTERNALS = "src/agent/internals/";

/** Private parts: members with an underscore and symbols of Node, V8's own functions, C++ names, OpenSSL's tables. */
const PRIVATE =
  /[.{] ?_(?:handle|parent|server|events|httpMessage)\b|getOwnPropertySymbols|process\.binding|expose-gc|"_Z|VERIFY_PARAM_|_set_msg_callback/;

function offenders(files: readonly (readonly [path: string, text: string])[]): string[] {
  return files.filter(([path, text]) => !path.startsWith(INTERNALS) && PRIVATE.test(text)).map(([path]) => path);
}

test("private parts of Node, V8 and OpenSSL are touched in one folder of the agent alone", () => {
  const paths = globSync("src/agent/**/*.{ts,c,h}", { cwd: ROOT });
  const files = paths.map((path) => [path, readFileSync(join(ROOT, path), "utf8")] as const);
  assert.deepEqual(offenders(files), []);
  const known = files.filter(([path, text]) => path.startsWith(INTERNALS) && PRIVATE.test(text));
  assert.ok(known.length >= 5, "the search finds those that are there");
});

test("a private part elsewhere is seen", () => {
  const file = "src/agent/server/listener.ts";
  for (const text of ["socket._handle?.fd", "const { _parent: below } = socket;", 'flags("--expose-gc")'])
    assert.deepEqual(offenders([[file, text]]), [file], text);
});
