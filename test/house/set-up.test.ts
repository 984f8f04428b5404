import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
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

const projectScripts = join(import.meta.dirname, "../../scripts");

interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

const LOCK = '{ "packages": {} }';
const OTHER_LOCK = '{ "packages": { "": {} } }';

/*
 * What goes wrong rarely: a machine that gets its packages, or with an old Node, is a real one in `npm run test:bare`.
 */

/** A fake npm, which records its arguments. */
const NPM = `#!/bin/sh
[ "$1" != view ] || exit 0
printf '%s|%s|%s\\n' "$*" "\${NODE_ENV-unset}" "$npm_config_cache" >>calls
`;

/** A project with the real scripts/run, one package, an addon that leaves a mark, and a folder for fake programs. */
function makeProject(t: TestContext): { readonly root: string; readonly fake: (name: string, text: string) => void } {
  const root = mkdtempSync(join(tmpdir(), "set-up-"));
  t.after(() => rmSync(root, { recursive: true }));
  const nodeFolder = join(root, `node_modules/node-linux-${process.arch}/bin`);
  for (const folder of [nodeFolder, join(root, "scripts"), join(root, "fake")]) mkdirSync(folder, { recursive: true });
  const exec = `#!/bin/sh\nexec "${process.execPath}" "$@"\n`;
  writeFileSync(join(nodeFolder, "node"), exec, { mode: 0o755 });
  copyFileSync(join(projectScripts, "run"), join(root, "scripts/run"));
  writeFileSync(join(root, "scripts/build-native.ts"), 'process.stdout.write("a path");');
  writeFileSync(join(root, "package-lock.json"), LOCK);
  const digest = createHash("sha256").update(LOCK).digest("hex");
  writeFileSync(join(root, "node_modules/.matches-lock"), `${process.arch} ${digest}  -`);
  mkdirSync(join(root, `dist/native/linux-${process.arch}`), { recursive: true });
  writeFileSync(join(root, `dist/native/linux-${process.arch}/agent.node`), "");
  const fake = (name: string, text: string): void => {
    writeFileSync(join(root, "fake", name), text);
    chmodSync(join(root, "fake", name), 0o755);
  };
  fake("npm", NPM);
  fake("node", exec);
  return { root, fake };
}

function runIn(root: string, env: Readonly<Record<string, string | undefined>> = {}): Promise<Outcome> {
  return new Promise((resolve) => {
    const child = execFile(
      "/bin/sh",
      [join(root, "scripts/run"), "-p", "[process.env.NODE_OPTIONS, process.env.NODE_ENV, 'ran'].join()"],
      { cwd: root, env: { PATH: `${join(root, "fake")}:/usr/bin:/bin`, HOME: root, ...env } },
      (_error, stdout, stderr) => resolve({ code: child.exitCode ?? -1, stdout, stderr }),
    );
  });
}

describe("scripts/run", () => {
  test("says nothing and calls no npm when everything is in place", async (t) => {
    const { root } = makeProject(t);
    assert.deepEqual(await runIn(root), { code: 0, stdout: ",,ran\n", stderr: "" });
    assert.equal(existsSync(join(root, "calls")), false);
  });

  test("installs once the lock file asks for something else, development packages always included", async (t) => {
    const { root } = makeProject(t);
    writeFileSync(join(root, "package-lock.json"), OTHER_LOCK);
    const outcome = await runIn(root, { NODE_ENV: "production", npm_config_omit: "dev" });
    assert.equal(outcome.stdout, ",,ran\n");
    assert.match(outcome.stderr, /^setup: installing the packages/);
    const [call = ""] = readFileSync(join(root, "calls"), "utf8").split("\n");
    assert.match(call, /^ci --include=dev --include=optional .*\|unset\|/);
    assert.deepEqual(await runIn(root), { code: 0, stdout: ",,ran\n", stderr: "" });
  });

  test("sets up once when it is started twice at the same time", async (t) => {
    const { root } = makeProject(t);
    writeFileSync(join(root, "package-lock.json"), OTHER_LOCK);
    const outcomes = await Promise.all([runIn(root), runIn(root), runIn(root)]);
    assert.deepEqual(
      outcomes.map(({ stdout }) => stdout),
      [",,ran\n", ",,ran\n", ",,ran\n"],
    );
    assert.equal(readFileSync(join(root, "calls"), "utf8").split("\n").length - 1, 1);
  });

  test("stops where npm failed, and tries again the next time", async (t) => {
    const { root, fake } = makeProject(t);
    writeFileSync(join(root, "package-lock.json"), OTHER_LOCK);
    fake("npm", '#!/bin/sh\n[ "$1" = view ]\n');
    for (let time = 0; time < 2; time++) {
      const { code, stdout, stderr } = await runIn(root);
      assert.deepEqual([code, stdout], [1, ""]);
      assert.match(stderr, /npm ci failed; see above/);
    }
  });

  test("names every package of the system that is missing, before it asks npm for anything", async (t) => {
    const { root, fake } = makeProject(t);
    writeFileSync(join(root, "package-lock.json"), OTHER_LOCK);
    fake("ldconfig", "#!/bin/sh\nexit 0\n");
    fake("apt-get", "#!/bin/sh\nexit 1\n");
    fake("id", "#!/bin/sh\necho 1000\n");
    // No compiler: only the programs that scripts/run itself starts.
    for (const tool of ["cat", "dirname", "flock", "mkdir", "sha256sum", "uname"]) {
      symlinkSync(`/usr/bin/${tool}`, join(root, "fake", tool));
    }
    const { code, stderr } = await runIn(root, { PATH: join(root, "fake") });
    assert.equal(code, 1);
    assert.match(stderr, /not root: build-essential libatomic1: .*apt-get install build-essential libatomic1\)\n$/);
    assert.equal(existsSync(join(root, "calls")), false);
  });

  const UNFIT: readonly (readonly [title: string, program: string, text: string, message: RegExp])[] = [
    ["another system", "uname", "case $1 in -s) echo Darwin ;; *) echo x86_64 ;; esac", /Linux only; this is Darwin/],
    [
      "another processor",
      "uname",
      "case $1 in -s) echo Linux ;; *) echo riscv64 ;; esac",
      /aarch64 only; this is riscv64/,
    ],
  ];
  for (const [title, program, text, message] of UNFIT) {
    test(`names what does not fit on ${title}`, async (t) => {
      const { root, fake } = makeProject(t);
      fake(program, `#!/bin/sh\n${text}\n`);
      const { code, stderr } = await runIn(root);
      assert.equal(code, 1);
      assert.match(stderr, message);
    });
  }

  test("without a network installs from npm's cache, and says so", async (t) => {
    const { root, fake } = makeProject(t);
    writeFileSync(join(root, "package-lock.json"), OTHER_LOCK);
    fake("npm", NPM.replace("exit 0", "exit 1"));
    const { code, stderr } = await runIn(root);
    assert.equal(code, 0);
    assert.match(stderr, /^setup: the registry does not answer: trying what npm has in its cache$/m);
    assert.match(readFileSync(join(root, "calls"), "utf8"), /^ci .* --offline /);
  });

  test("without a network and the packages names the registry, and never what stands before its host", async (t) => {
    const { root, fake } = makeProject(t);
    writeFileSync(join(root, "package-lock.json"), OTHER_LOCK);
    const answers = "config) echo https://me:secret@registry.example/npm/ ;; view) echo npm ERR! code ENOTFOUND >&2 ;;";
    fake("npm", `#!/bin/sh\ncase $1 in ${answers} esac\nexit 1\n`);
    const { code, stderr } = await runIn(root);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /\nsetup: no network: https:\/\/registry\.example\/npm\/ does not answer \(ENOTFOUND\), .* check the network/,
    );
  });

  test("asks a registry for at most ten seconds, and then lets npm tell: a busy machine is no missing network", async (t) => {
    const { root, fake } = makeProject(t);
    writeFileSync(join(root, "package-lock.json"), OTHER_LOCK);
    // A fake timeout(1), which does not wait.
    fake("timeout", '#!/bin/sh\necho "limit $1 for $2 $3" >>calls; exit 124\n');
    const { code, stderr } = await runIn(root);
    const calls = readFileSync(join(root, "calls"), "utf8");
    assert.match(calls, /^limit 10 for npm view\nci .* --prefer-offline/);
    assert.equal(code, 0);
    assert.doesNotMatch(stderr, /does not answer/);
  });
});
