import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test, type TestContext } from "node:test";
import { execa } from "execa";
import { shown } from "../../../src/node/guestctl/cli/index.ts";
import { COMMANDS } from "../../../src/node/guestctl/commands/commands.ts";
import { SHELLS } from "../../../src/node/guestctl/commands/completion.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { putGuestctl, runGuestctl, startIssuedAgent } from "./guestctl.ts";

/** Completes a command line's last word, given the line, its words, the script and a directory with a `guestctl`. */
const COMPLETER = `source "$SCRIPT"; COMP_LINE=$LINE; COMP_POINT=\${#LINE}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _guestctl
printf '%s\\n' "\${COMPREPLY[@]}"`;

function isMissing(t: TestContext, shell: string): boolean {
  const isThere = spawnSync(shell, ["--version"]).status === 0;
  if (!isThere) t.skip(`needs ${shell} (Debian: ${shell})`);
  return !isThere;
}

const directory = forAllTests(await testDirectory()).path;
const env = {
  PATH: `${join(directory, "bin")}:${process.env["PATH"] ?? "/usr/bin:/bin"}`,
  HOME: directory,
  XDG_CONFIG_HOME: join(directory, "config"),
};

describe("guestctl completion", () => {
  before(async () => {
    await mkdir(join(directory, "bin"));
    await putGuestctl(join(directory, "bin"));
    for (const shell of SHELLS) {
      const { stdout, stderr, exitCode } = await runGuestctl(["completion", shell], env);
      assert.deepEqual([stderr, exitCode], ["", 0]);
      await writeFile(join(directory, shell), stdout);
    }
    await mkdir(join(directory, "work/a directory"), { recursive: true });
    await writeFile(join(directory, "work/a file"), "");
    await symlink("a file", join(directory, "work/another"));
  });

  async function offers(line: string): Promise<string[]> {
    const whole = `guestctl ${line}`;
    // bash splits words at colons and equals signs, and completes the part after the last.
    const parts = whole.split(/ |(?<=[:=])(?=[^ ])|(?=[:=])/);
    const { stdout } = await execa("bash", ["-c", COMPLETER, "bash", ...parts], {
      env: { ...env, LINE: whole, SCRIPT: join(directory, "bash") },
      extendEnv: false,
      cwd: join(directory, "work"),
    });
    return stdout.split("\n").filter((word) => word !== "");
  }

  test("`completion` offers commands, options, files, directories and arguments such as `zsh`", async (t) => {
    if (isMissing(t, "bash")) return;
    const all = await offers("");
    for (const name of COMMANDS.keys()) assert.ok(all.includes(name), name);
    assert.deepEqual(await offers("he"), ["health"]);
    for (const [name, entry] of COMMANDS) {
      const offered = await offers(`${name} --`);
      assert.deepEqual(
        offered.toSorted(),
        Object.keys(shown((await entry.load()).options))
          .map((option) => `--${option}`)
          .toSorted(),
      );
    }
    assert.deepEqual(await offers("hook po"), ["post-restore"]);
    assert.deepEqual(await offers("completion z"), ["zsh"]);
    assert.deepEqual(await offers("health --address "), []);
    const directories = (await offers("health --credentials a")).map((name) => name.replace(/\/$/, ""));
    assert.deepEqual(directories, ["a directory"]);
  });

  test("`completion` offers names of kept commands and paths in the sandbox", async (t) => {
    if (isMissing(t, "bash")) return;
    await using agent = await startIssuedAgent();
    const address = `127.0.0.1:${agent.port}`;
    const reach = ["-H", address, "-c", agent.credentialsDir];
    await runGuestctl(["exec", ...reach, "--name", "server", "-d", "sleep", "1000"], env);
    const there = join(directory, "there");
    await mkdir(join(there, "some directory"), { recursive: true });
    for (const name of ["some", "other", ".hidden"]) await writeFile(join(there, name), "");
    const connection = `-H ${address} -c ${agent.credentialsDir}`;
    const found = (names: readonly string[]): string[] =>
      names.map((name) => name.replace(/^:/, "").replaceAll("\\ ", " ")).toSorted();
    for (const command of ["attach", "end", "kill"]) {
      assert.deepEqual(await offers(`${command} ${connection} s`), ["server"]);
    }
    for (const line of [`cat ${connection} ${there}/s`, `cp ${connection} :${there}/s`]) {
      assert.deepEqual(found(await offers(line)), [`${there}/some`, `${there}/some directory/`]);
    }
    assert.deepEqual(found(await offers(`cp ${connection} a :${there}/`)), [
      `${there}/other`,
      `${there}/some`,
      `${there}/some directory/`,
    ]);
    assert.deepEqual(await offers(`cat ${connection} ${there}/none/x`), []);
    await runGuestctl(["end", ...reach, "server"], env);
  });

  test("bash completion offers local files to cp, not to exec", async (t) => {
    if (isMissing(t, "bash")) return;
    assert.deepEqual((await offers("cp a")).toSorted(), ["a directory", "a file", "another"]);
    assert.deepEqual((await offers("cp -H host:7071 one ano")).toSorted(), ["another"]);
    assert.deepEqual(await offers("exec -it a"), []);
    assert.deepEqual(await offers("exec ls --"), []);
    assert.deepEqual(await offers("exec -- --"), []);
    assert.ok((await offers("exec -e A --w")).includes("--workdir"));
  });

  test("bash completion works with options written as `--option=value`", async (t) => {
    if (isMissing(t, "bash")) return;
    assert.deepEqual(await offers("health --credentials="), ["a directory"]);
    assert.deepEqual(await offers("health --credentials=a"), ["a directory"]);
    assert.deepEqual(await offers("hook --timeout=5s pre"), ["pre-snapshot"]);
  });

  test("`completion --json` prints the shell's completion script in a JSON object", async () => {
    const { stdout } = await runGuestctl(["completion", "bash", "--json"], env);
    const { shell, script } = JSON.parse(stdout) as Record<string, string>;
    assert.equal(shell, "bash");
    assert.match(script ?? "", /complete -F _guestctl guestctl\n$/);
  });
});
