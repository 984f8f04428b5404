import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { execa } from "execa";
import { COMPILED_ONCE } from "../../scripts/testing/compiled.ts";
import { unclearWords } from "../../scripts/check.ts";

const ROOT = join(import.meta.dirname, "../..");
const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
  readonly scripts: Readonly<Record<string, string>>;
};
/** The npm scripts that are programs of ours, by name. */
const OURS = Object.entries(scripts).flatMap(([name, line]) => {
  const [, file] = /((?:scripts|test)\/[\w/-]+\.ts)$/.exec(line) ?? [];
  return file === undefined ? [] : [{ name, file }];
});

const run = (file: string, args: readonly string[], env: NodeJS.ProcessEnv = {}) =>
  execa(process.execPath, [...COMPILED_ONCE, join(ROOT, file), ...args], {
    cwd: ROOT,
    env,
    reject: false,
    stripFinalNewline: false,
  });

test("if GUEST_AGENT_CACHE is empty, the cache is the clone's .cache directory", () => {
  const said = `import { CACHE_DIRECTORY } from "./scripts/machine/cache.ts"; console.log(CACHE_DIRECTORY);`;
  const options = { cwd: ROOT, encoding: "utf8", env: { ...process.env, GUEST_AGENT_CACHE: "" } } as const;
  const { stdout } = spawnSync(process.execPath, ["--input-type=module", "--eval", said], options);
  assert.equal(stdout, `${join(ROOT, ".cache")}\n`);
});

test("the nightly workflow runs every part of .ci/nightly", () => {
  const named = (file: string, list: RegExp): string[] =>
    (list.exec(readFileSync(join(ROOT, file), "utf8"))?.[1] ?? "").split(/[\s,]+/);
  const parts = named(".ci/nightly", /^all=\(([^)]+)\)$/m);
  assert.ok(parts.length > 5, "found no parts in .ci/nightly");
  assert.deepEqual(named(".github/workflows/nightly.yml", /^ +part: \[([^\]]+)\]$/m), parts);
});

describe("npm scripts", () => {
  test("this test file finds at least nine npm scripts to check", () => {
    assert.ok(OURS.some(({ name }) => name === "abuse") && OURS.length > 8, JSON.stringify(OURS));
  });

  for (const { name, file } of OURS) {
    test(`npm run ${name} -- --help only prints its usage`, async () => {
      const { exitCode: code, stdout, stderr } = await run(file, ["--help"]);
      assert.deepEqual([code, stderr], [0, ""]);
      assert.match(stdout, new RegExp(`^usage: npm ${name === "start" || name === "test" ? "" : "run "}${name}`));
    });

    test(`npm run ${name} rejects an unknown option and names it`, async () => {
      const { exitCode: code, stdout, stderr } = await run(file, ["--no-such-option"]);
      assert.deepEqual([code, stdout], [64, ""]);
      assert.match(stderr, new RegExp(`^${name}: .*--no-such-option.*\\nusage: `));
    });
  }

  test("npm scripts reject an option value that is not a positive whole number", async () => {
    for (const word of ["many", "0", "1.5", "1e9"]) {
      const { exitCode: code, stdout, stderr } = await run("test/abuse/main.ts", ["--inputs", word]);
      assert.deepEqual([code, stdout], [64, ""]);
      assert.match(stderr, new RegExp(`--inputs is a whole number from 1 on, not "${word}"`));
    }
  });

  test("npm run check reports a missing git program and a missing repository", async () => {
    const nowhere = await run("scripts/check.ts", ["shell"], { PATH: "/nowhere" });
    assert.deepEqual([nowhere.exitCode, nowhere.stdout], [1, ""]);
    assert.match(nowhere.stderr, /^check: needs git, .*apt-get install git\)\n$/);
    const noClone = await run("scripts/check.ts", ["shell"], { GIT_DIR: "/nowhere" });
    assert.deepEqual([noClone.exitCode, noClone.stdout], [1, ""]);
    const hasGit = spawnSync("git", ["--version"]).status === 0;
    assert.match(noClone.stderr, hasGit ? /^check: needs a clone: / : /^check: needs git, /);
  });
});

describe("the check of words", () => {
  test("the word check reports unclear words in comments and strings, not in identifiers", () => {
    const text =
      '/** Whoever asks. */\nconst folder = 1;\nfail("the path is no directory");\n// There is no limit.\n// NOT_A_FOLDER';
    assert.deepEqual(
      unclearWords("a.ts", text).map((line) => line.split(" has ")[0]),
      ["a.ts:1", "a.ts:3"],
    );
  });
});
