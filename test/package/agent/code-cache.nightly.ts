import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { DEPEND_ON_BUILDER, scriptPieces } from "../../../scripts/package/agent/code-cache.ts";
import { bundleScript } from "../../../scripts/package/bundle.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { inMountNamespace, NEEDS_NAMESPACES, UNMOUNT_CGROUPS } from "../../fixtures/namespaces.ts";
import { NEEDS_OPEN_CLONE } from "../../fixtures/privileges.ts";

const ROOT = join(import.meta.dirname, "../../..");
const PROGRAM = join(import.meta.dirname, "../../fixtures/programs/called-functions.ts");
const ADDON_DIRECTORY = join(ROOT, "dist/native", `linux-${process.arch}`);
const NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
const skip = NEEDS_NAMESPACES.skip === false ? NEEDS_OPEN_CLONE.skip : NEEDS_NAMESPACES.skip;

test("DEPEND_ON_BUILDER lists all sources that run other functions for other users", { skip }, async () => {
  await using directory = await testDirectory();
  const script = directory.at("agent.js");
  await bundleScript(ROOT, script);
  execFileSync("chmod", ["-R", "go+rX", directory.path]);
  const called = (builder: readonly string[]): Set<number> => {
    const [program, ...words] = [...builder, process.execPath, PROGRAM, script, ADDON_DIRECTORY];
    return new Set(JSON.parse(execFileSync(program, words, { encoding: "utf8" })) as number[]);
  };
  const byRoot = called([]);
  const byUsers = [called([...inMountNamespace(UNMOUNT_CGROUPS), ...NOBODY]), called(NOBODY)];
  for (const each of [byRoot, ...byUsers]) assert.ok(each.size > 1_000, String(each.size));
  const others = new Set(byUsers.flatMap((byUser) => [...byRoot.symmetricDifference(byUser)]));
  assert.ok(others.size > 0, "they call the same functions: the list is no longer needed");
  const sources = scriptPieces(script)
    .filter(({ start, end }) => [...others].some((offset) => offset >= start && offset < end))
    .map(({ source }) => source);
  assert.deepEqual(
    [...new Set(sources)].filter((source) => !DEPEND_ON_BUILDER.some((path) => source.endsWith(path))),
    [],
  );
});
