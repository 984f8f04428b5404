import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { execa } from "execa";
import { installClient, machineNode } from "../fixtures/client-package.ts";
import { testFolder } from "../fixtures/files.ts";

/* The packed client library by npm's programs; test/node/client/package.nightly.ts compiles programs with it. */

const PUBLINT = "publint@0.3.25";
const ATTW = "@arethetypeswrong/cli@0.18.5";
const LIMIT_MS = 250_000;

test("publint and arethetypeswrong have nothing to say of the packed client library", async (t) => {
  const machine = machineNode();
  if (typeof machine === "string") {
    t.skip(machine);
    return;
  }
  await using folder = await testFolder();
  const program = (await installClient(folder.path, machine.path)).folder;
  const [tarball = ""] = globSync("*.tgz", { cwd: program });
  const options = { cwd: folder.path, env: { PATH: machine.path }, timeout: LIMIT_MS } as const;
  const publint = await execa("npx", ["--yes", PUBLINT, join(program, tarball), "--strict"], options);
  assert.match(publint.stdout, /All good!/);
  // Into a file: attw ends before a pipe has taken all.
  const report = join(folder.path, "report.json");
  const words = ["--yes", ATTW, join(program, tarball), "--format", "json"];
  await execa("sh", ["-c", 'exec npx "$@" > "$0"', report, ...words], { ...options, reject: false });
  const { analysis, problems } = JSON.parse(await readFile(report, "utf8")) as {
    readonly analysis: { readonly entrypoints: Readonly<Record<string, object>> };
    readonly problems: object;
  };
  assert.deepEqual(Object.keys(analysis.entrypoints).toSorted(), [".", "./package.json", "./sandboxes", "./testing"]);
  assert.deepEqual(problems, {});
});
