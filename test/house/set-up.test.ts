import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { execa } from "execa";

const projectScripts = join(import.meta.dirname, "../../scripts");

const LOCK = '{ "packages": {} }';
const OTHER_LOCK = '{ "packages": { "": {} } }';

/*
 * What goes wrong rarely: a machine that gets its packages, or with an old Node, is a real one in `npm run test:bare`.
 */

/** A fake npm, which records its arguments. */
const NPM = `[ "$1" != view ] || exit 0
printf '%s|%s|%s\\n' "$*" "\${NODE_ENV-unset}" "$npm_config_cache" >>calls
`;

/** A project with the real scripts/run, one package, an addon that leaves a mark, and a directory for fake programs. */
function makeProject(
  t: TestContext,
  lock = LOCK,
): { readonly root: string; readonly fake: (name: string, text: string) => void } {
  const root = mkdtempSync(join(tmpdir(), "set-up-"));
  t.after(() => rmSync(root, { recursive: true }));
  const nodeDirectory = join(root, `node_modules/node-linux-${process.arch}/bin`);
  for (const directory of [nodeDirectory, join(root, "scripts"), join(root, "fake")])
    mkdirSync(directory, { recursive: true });
  const exec = `exec "${process.execPath}" "$@"`;
  writeFileSync(join(nodeDirectory, "node"), `#!/bin/sh\n${exec}\n`, { mode: 0o755 });
  copyFileSync(join(projectScripts, "run"), join(root, "scripts/run"));
  writeFileSync(join(root, "scripts/build-native.ts"), 'process.stdout.write("a path");');
  writeFileSync(join(root, "package-lock.json"), lock);
  const digest = createHash("sha256").update(LOCK).digest("hex");
  writeFileSync(join(root, "node_modules/.matches-lock"), `${process.arch} ${digest}  -`);
  mkdirSync(join(root, `dist/native/linux-${process.arch}`), { recursive: true });
  writeFileSync(join(root, `dist/native/linux-${process.arch}/agent.node`), "");
  const fake = (name: string, text: string): void => {
    writeFileSync(join(root, "fake", name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  };
  fake("npm", NPM);
  fake("node", exec);
  return { root, fake };
}

function runIn(root: string, env: NodeJS.ProcessEnv = {}) {
  const said = "[process.env.NODE_OPTIONS, process.env.NODE_ENV, 'ran'].join()";
  const own = { PATH: `${join(root, "fake")}:/usr/bin:/bin`, HOME: root, ...env };
  return execa("/bin/sh", [join(root, "scripts/run"), "-p", said], {
    cwd: root,
    env: own,
    extendEnv: false,
    reject: false,
    all: true,
  });
}

const calls = (root: string): string => readFileSync(join(root, "calls"), "utf8");

describe("scripts/run", () => {
  test("scripts/run is silent and does not call npm if everything is installed", async (t) => {
    const { root } = makeProject(t);
    assert.equal((await runIn(root)).all, ",,ran");
    assert.equal(existsSync(join(root, "calls")), false);
  });

  test("scripts/run reinstalls all packages, including development ones, after the lock file changed", async (t) => {
    const { root } = makeProject(t, OTHER_LOCK);
    const { stdout, stderr } = await runIn(root, { NODE_ENV: "production", npm_config_omit: "dev" });
    assert.equal(stdout, ",,ran");
    assert.match(stderr, /^setup: installing the packages/);
    assert.match(calls(root), /^ci --include=dev --include=optional .*\|unset\|/);
    assert.equal((await runIn(root)).all, ",,ran");
  });

  test("concurrent runs of scripts/run install the packages only once", async (t) => {
    const { root } = makeProject(t, OTHER_LOCK);
    for (const { stdout } of await Promise.all([runIn(root), runIn(root), runIn(root)])) assert.equal(stdout, ",,ran");
    assert.equal(calls(root).trimEnd().split("\n").length, 1);
  });

  test("scripts/run names every missing system package before it calls npm", async (t) => {
    const { root, fake } = makeProject(t, OTHER_LOCK);
    for (const [name, text] of [
      ["ldconfig", "exit 0"],
      ["apt-get", "exit 1"],
      ["id", "echo 1000"],
    ] as const)
      fake(name, text);
    // No compiler: only the programs that scripts/run itself starts.
    for (const tool of ["cat", "dirname", "flock", "mkdir", "sha256sum", "uname"]) {
      symlinkSync(`/usr/bin/${tool}`, join(root, "fake", tool));
    }
    const { exitCode, stderr } = await runIn(root, { PATH: join(root, "fake") });
    assert.equal(exitCode, 1);
    assert.match(stderr, /not root: build-essential libatomic1: .*apt-get install build-essential libatomic1\)$/);
    assert.equal(existsSync(join(root, "calls")), false);
  });

  const noRegistry =
    "config) echo https://me:secret@registry.example/npm/ ;; view) echo npm ERR! code ENOTFOUND >&2 ;;";
  const FAULTS: readonly (readonly [
    title: string,
    program: string,
    text: string,
    code: number,
    says: RegExp,
    calls?: RegExp,
  ])[] = [
    [
      "scripts/run names an unsupported operating system",
      "uname",
      "case $1 in -s) echo Darwin ;; *) echo x86_64 ;; esac",
      1,
      /Linux only; this is Darwin/,
    ],
    [
      "scripts/run names an unsupported processor",
      "uname",
      "case $1 in -s) echo Linux ;; *) echo riscv64 ;; esac",
      1,
      /aarch64 only; this is riscv64/,
    ],
    ["scripts/run fails if npm fails and retries the next time", "npm", "[ $1 = view ]", 1, /npm ci failed; see above/],
    [
      "scripts/run without a network installs from npm's cache and says so",
      "npm",
      NPM.replace("exit 0", "exit 1"),
      0,
      /^setup: the registry does not answer: trying what npm has in its cache$/m,
      /^ci .* --offline /,
    ],
    [
      "scripts/run without network and cache names the registry without its credentials",
      "npm",
      `case $1 in ${noRegistry} esac\nexit 1`,
      1,
      /\nsetup: no network: https:\/\/registry\.example\/npm\/ does not answer \(ENOTFOUND\), .* check the network/,
    ],
    [
      "scripts/run waits ten seconds for the registry and then lets npm decide",
      // A fake timeout(1), which does not wait.
      "timeout",
      'echo "limit $1 for $2 $3" >>calls; exit 124',
      0,
      /^(?!.*does not answer)/s,
      /^limit 10 for npm view\nci .* --prefer-offline/,
    ],
  ];
  for (const [title, program, text, code, says, called] of FAULTS)
    test(title, async (t) => {
      const { root, fake } = makeProject(t, OTHER_LOCK);
      fake(program, text);
      for (let time = 0; time <= code; time++) {
        const { exitCode, stderr } = await runIn(root);
        assert.equal(exitCode, code);
        assert.match(stderr, says);
      }
      if (called !== undefined) assert.match(calls(root), called);
    });
});
