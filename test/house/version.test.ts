import assert from "node:assert/strict";
import { cpSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { projectVersion, releaseFault, setVersion, versionFaults } from "../../scripts/release/version.ts";

const ROOT = join(import.meta.dirname, "../..");

/** A copy of the files that name the version. */
function copy(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), "version-"));
  t.after(() => rmSync(directory, { recursive: true }));
  for (const file of globSync(["*.md", "docs/**/*.md", "package.json", "package-lock.json"], { cwd: ROOT })) {
    mkdirSync(dirname(join(directory, file)), { recursive: true });
    cpSync(join(ROOT, file), join(directory, file));
  }
  return directory;
}

describe("the project's version", () => {
  test("package.json, lock file, changelog and documents have the same version", () => {
    assert.deepEqual(versionFaults(ROOT), []);
  });

  test("setVersion writes a new version into all files and dates the changelog", (t) => {
    const directory = copy(t);
    const before = readFileSync(join(directory, "package-lock.json"), "utf8");
    setVersion(directory, "7.8.9", "2031-02-03");
    assert.deepEqual([projectVersion(directory), versionFaults(directory)], ["7.8.9", []]);
    const changelog = readFileSync(join(directory, "CHANGELOG.md"), "utf8");
    assert.match(changelog, /^## \[Unreleased\]\n\n## \[7\.8\.9\] - 2031-02-03\n/m);
    assert.match(readFileSync(join(directory, "docs/agent/images.md"), "utf8"), /guest-agent:7\.8\.9/);
    const lock = readFileSync(join(directory, "package-lock.json"), "utf8").split("\n");
    assert.equal(lock.filter((line, index) => line !== before.split("\n")[index]).length, 2);
  });

  test("releaseFault rejects a release without changes or with an older version", (t) => {
    const directory = copy(t);
    setVersion(directory, "7.8.9", "2031-02-03");
    assert.match(releaseFault(directory, "7.9.0") ?? "", /nothing under \[Unreleased\] that 7\.9\.0/);
    assert.equal(releaseFault(directory, "7.8.9"), undefined);
    const path = join(directory, "CHANGELOG.md");
    writeFileSync(path, readFileSync(path, "utf8").replace("## [Unreleased]\n", "## [Unreleased]\n\n- New.\n"));
    assert.match(releaseFault(directory, "7.8.9") ?? "", /changes after 7\.8\.9/);
    assert.equal(releaseFault(directory, "7.8.10"), undefined);
    assert.match(releaseFault(directory, "7.8.8") ?? "", /7\.8\.8 is not after 7\.8\.9/);
  });

  for (const [file, from, to, fault] of [
    ["package-lock.json", /"version": "[^"]+"/, '"version": "0.0.7"', /^package-lock\.json has version 0\.0\.7/],
    [
      "CHANGELOG.md",
      "## [Unreleased]",
      "## [Unreleased]\n\n## [0.0.7] - 2031-02-03",
      /newest release of CHANGELOG\.md has/,
    ],
    ["CHANGELOG.md", "## [Unreleased]", "## [Unreleased]\n\n## [0.0.7]", /CHANGELOG\.md gives 0\.0\.7 no date/],
    [
      "docs/agent/images.md",
      /guest-agent:\d+\.\d+\.\d+/,
      "guest-agent:0.0.7",
      /images\.md: guest-agent:0\.0\.7 has version/,
    ],
  ] as const) {
    test(`the version check finds another version or missing date in ${file}`, (t) => {
      const directory = copy(t);
      const path = join(directory, file);
      writeFileSync(path, readFileSync(path, "utf8").replace(from, to));
      assert.ok(
        versionFaults(directory).some((line) => fault.test(line)),
        versionFaults(directory).join("\n"),
      );
    });
  }
});
