import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, lstatSync, mkdirSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { testDirectory } from "../../fixtures/files.ts";
import { parseModeChange } from "../../../src/node/guestctl/cli/symbolic-mode.ts";
import { UsageError } from "../../../src/node/guestctl/cli/errors.ts";

const CHANGES = (
  "755 0644 4711 0 u+x +x a+x go-w u=rw a=rX g+rX o= = u+s g-s +t -t a+t ug+s,o-rwx u=rwx,g=rx,o= a-x uo=x g=rws +w -r " +
  "a=t"
).split(" ");
const MODES = [0o644, 0o755, 0o600, 0o4755, 0o2770, 0o1777, 0o7777, 0];

describe("a symbolic mode", () => {
  test("a symbolic mode sets the bits that chmod(1) sets", async () => {
    await using directory = await testDirectory();
    const cases = ["file", "directory"].flatMap((type) =>
      MODES.flatMap((mode) => CHANGES.map((change) => ({ type, mode, change }))),
    );
    const lines = cases.map(({ type, mode, change }, index) => {
      const path = directory.at(String(index));
      if (type === "file") writeFileSync(path, "");
      else mkdirSync(path);
      chmodSync(path, mode);
      // GNU's chmod keeps the special bits of directories at a short octal mode.
      return `chmod -- ${/^\d/.test(change) ? change.padStart(5, "0") : change} ${path}`;
    });
    // Without a umask, as in a sandbox.
    const { status, stderr } = spawnSync("sh", ["-e"], { input: ["umask 0", ...lines].join("\n"), encoding: "utf8" });
    assert.deepEqual([status, stderr], [0, ""]);
    for (const [index, { type, mode, change }] of cases.entries()) {
      const expected = lstatSync(directory.at(String(index))).mode & 0o7777;
      const changed = parseModeChange(change)(mode, type === "directory");
      assert.equal(changed.toString(8), expected.toString(8), `${type} ${mode.toString(8)} ${change}`);
    }
  });

  test("parseModeChange rejects invalid modes and unsupported ones such as `g=u`", () => {
    for (const text of ["", "u", "z+x", "u+z", "u+x,", "99", "01777777", "g=u", "u+x go-w"])
      assert.throws(() => parseModeChange(text), UsageError, text);
  });
});
