import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const ROOT = join(import.meta.dirname, "../..");
// The library's is out of guestctl's reach, and guestctl has to know its streams before it loads the library.
const INTERNALS = ["src/agent/internals/", "src/node/client/grpc/internals/", "src/node/guestctl/ending/"];

/**
 * Private parts: members with an underscore and symbols of Node, V8's own functions, C++ names, OpenSSL's tables,
 * grpc-js.
 */
const PRIVATE =
  /[.{] ?_(?:handle|parent|server|events|httpMessage)\b|getOwnPropertySymbols|process\.binding|expose-gc|"_Z|VERIFY_PARAM_|_set_msg_callback|internalChannel|http2Stream\b/;

function offenders(files: readonly (readonly [path: string, text: string])[]): string[] {
  return files.filter(([path, text]) => !isInside(path) && PRIVATE.test(text)).map(([path]) => path);
}

function isInside(path: string): boolean {
  return INTERNALS.some((directory) => path.startsWith(directory));
}

test("only the internals directories use private parts of Node and OpenSSL", () => {
  const paths = globSync("src/{agent,node}/**/*.{ts,c,h}", { cwd: ROOT });
  const files = paths.map((path) => [path, readFileSync(join(ROOT, path), "utf8")] as const);
  assert.deepEqual(offenders(files), []);
  const known = files.filter(([path, text]) => isInside(path) && PRIVATE.test(text));
  assert.ok(known.length >= 8, "the search finds those that are there");
});

test("the internals check reports a source that uses private parts of Node", () => {
  const file = "src/agent/server/management.ts";
  for (const text of ["socket._handle?.fd", "const { _parent: below } = socket;", 'flags("--expose-gc")'])
    assert.deepEqual(offenders([[file, text]]), [file], text);
});
