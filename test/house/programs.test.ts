import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import type { Program } from "../../scripts/machine/programs.ts";

const wanted: Program = { name: "wanted-by-a-test", package: "wanted-package" };
const present: Program = { name: "sh", package: "dash" };

/** A fake apt-get: records its arguments and puts the program into the first folder of PATH. */
const APT_GET = `#!/bin/sh
folder=\${PATH%%:*}
echo "$*" >>"$folder/calls"
case $* in *" install "*) printf '#!/bin/sh\\n' >"$folder/wanted-by-a-test"; chmod 755 "$folder/wanted-by-a-test" ;; esac
`;

function makeFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "programs-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** Provides the programs in a process of its own, whose PATH begins with the folder. */
function provide(folder: string, programs: readonly Program[], PATH = `${folder}:/usr/bin:/bin`) {
  const door = join(import.meta.dirname, "../../scripts/machine/programs.ts");
  const script = `import { providePrograms } from ${JSON.stringify(door)};
    console.log(JSON.stringify(providePrograms(${JSON.stringify(programs)}, "for a test")));`;
  const args = ["--input-type=module", "--eval", script];
  const { stdout, stderr } = spawnSync(process.execPath, args, { env: { PATH }, encoding: "utf8" });
  return { missing: JSON.parse(stdout) as Program[], stderr };
}

describe("the programs that scripts need", () => {
  test("installs what is missing by its package, as root", (t) => {
    if (process.getuid?.() !== 0) {
      t.skip("needs root");
      return;
    }
    const folder = makeFolder(t);
    writeFileSync(join(folder, "apt-get"), APT_GET, { mode: 0o755 });
    const { missing, stderr } = provide(folder, [present, wanted]);
    assert.deepEqual(missing, []);
    assert.match(stderr, /installing with apt-get, for a test: wanted-package/);
    assert.match(readFileSync(join(folder, "calls"), "utf8"), /update -qq\n.* install .*wanted-package\n$/);
  });

  test("says what to install where it cannot be installed", (t) => {
    const folder = makeFolder(t);
    writeFileSync(join(folder, "apt-get"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
    const { missing, stderr } = provide(folder, [wanted]);
    assert.deepEqual(missing, [wanted]);
    assert.match(stderr, /missing, for a test: wanted-by-a-test \(Debian, Ubuntu: apt-get install wanted-package\)/);
  });
});
