import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { bundle } from "../../../scripts/package/bundle.ts";
import { MUTATIONS, SHOW_OWN_NUMBERS } from "../clones/mutations.ts";
import { type Patch, patches } from "./patches.ts";

const ROOT = join(import.meta.dirname, "..", "..", "..");
const ABSENT: Patch = { file: "src/agent/main.ts", find: "what nobody wrote", replace: "" };

async function build(t: TestContext, changes: readonly Patch[]): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "patches-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const output = join(folder, "agent.cjs");
  await bundle(join(ROOT, "src", "agent", "main.ts"), output, [patches(ROOT, changes)]);
}

for (const { without, patch } of MUTATIONS) {
  test(`the agent can be built without ${without}`, (t) => build(t, [SHOW_OWN_NUMBERS, patch]));
}

test("a patch whose text is gone from its file fails the build", async (t) => {
  await assert.rejects(build(t, [ABSENT]), /src\/agent\/main\.ts has not once: what nobody wrote/);
});

test("a patch whose file is not in the bundle fails the build", async (t) => {
  await assert.rejects(build(t, [{ ...ABSENT, file: "src/gone.ts" }]), /src\/gone\.ts is not in the bundle/);
});
