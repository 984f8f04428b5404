import assert from "node:assert/strict";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { buildNative } from "../../../scripts/build-native.ts";
import { ADDON_FILE, AddonError, loadAddon } from "../../../src/agent/native/index.ts";

const built = dirname(buildNative());

test("a missing addon is reported with its path and the command that builds it", () => {
  assert.throws(
    () => loadAddon(["/nonexistent"]),
    (error) =>
      error instanceof AddonError && /npm run build:native/.test(error.message) && /\/nonexistent/.test(error.message),
  );
});

test("a file that is no addon is reported with the loader's reason", async () => {
  const folder = await mkdtemp(join(tmpdir(), "guest-agent-load-"));
  try {
    await writeFile(
      join(folder, ADDON_FILE),
      "not an ELF file, but long enough to be read as a header of one, perhaps",
    );
    assert.throws(() => loadAddon([folder]), /invalid ELF header/);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("an addon whose sources did not change is not built again", async () => {
  const before = await stat(join(built, ADDON_FILE));
  buildNative();
  assert.equal((await stat(join(built, ADDON_FILE))).ino, before.ino);
});

test("an unknown architecture is refused by name", () => {
  assert.throws(() => buildNative("sparc"), /"sparc".*x64 or arm64/);
});
