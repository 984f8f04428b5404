import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { chmod, mkdir, open, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { execa } from "execa";
import { testDirectory } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { GUESTCTL, guestctlVariables, startIssuedAgent } from "../node/guestctl/guestctl.ts";
import { lackOf } from "./programs.ts";

/* Programs that want an ssh, through `guestctl rsh`, by the lines of the documentation. */

const DOCUMENT = join(import.meta.dirname, "../../docs/node/guestctl.md");
const PROGRAMS = [
  { name: "rsync", package: "rsync" },
  { name: "git", package: "git" },
  { name: "ansible", package: "ansible-core" },
];
/** An emergency brake. */
const LINE_LIMIT_MS = 400_000;
const FILES = 10_000;
const FILES_PER_DIRECTORY = 250;
const MIB = 1024 * 1024;
const LARGE_BYTES = 32 * MIB;
const PERSON = "git -c user.name=A -c user.email=a@example.invalid -c commit.gpgsign=false";

const lack = lackOf(PROGRAMS);
if (lack === undefined) await defineTests();
else test("rsync, git and Ansible work through guestctl rsh", (t) => t.skip(lack));

/** One agent for all, and a directory of the host to work in with `srv`, the guest's /srv, and a PATH that has guestctl. */
async function defineTests(): Promise<void> {
  const directory = forAllTests(await testDirectory()).path;
  const agent = forAllTests(await startIssuedAgent());
  const env = {
    ...guestctlVariables(agent),
    PATH: `${directory}/bin:${process.env["PATH"] ?? "/usr/bin:/bin"}`,
    HOME: directory,
    LANG: "C.UTF-8",
  };
  /** Runs a script in the directory and returns its output. @throws Error with all of its output, if it fails */
  const shell = async (script: string): Promise<string> => {
    const options = {
      cwd: directory,
      env,
      extendEnv: false,
      all: true,
      reject: false,
      timeout: LINE_LIMIT_MS,
    } as const;
    const { stdout, exitCode, all } = await execa("sh", ["-ec", script], { ...options, stdin: "ignore" });
    if (exitCode !== 0) throw new Error(`exit ${exitCode} of ${script}: ${all}`);
    return stdout;
  };
  /** The lines of a tool's chapter, with /srv in the directory. */
  const documented = async (tool: string): Promise<readonly string[]> => {
    const chapter = new RegExp(`^### ${tool}\\n[^]*?^\`\`\`sh\\n([^]*?)^\`\`\``, "m");
    const [, block = ""] = chapter.exec(await readFile(DOCUMENT, "utf8")) ?? [];
    assert.notEqual(block, "", `${DOCUMENT} has no lines for ${tool}`);
    return block.trimEnd().replaceAll("/srv/", `${directory}/srv/`).split("\n");
  };
  const site = join(directory, "site");
  const words = GUESTCTL.map((word) => `'${word.replaceAll("'", String.raw`'\''`)}'`).join(" ");
  await shell("mkdir bin srv");
  await writeFile(join(directory, "bin/guestctl"), `#!/bin/sh\nexec ${words} "$@"\n`);
  await chmod(join(directory, "bin/guestctl"), 0o755);

  const [copy = "", byContent = "", back = ""] = await documented("rsync");

  test("rsync uploads 10,000 files, then only changed ones, and downloads them all", async () => {
    await writeTree(site);
    await shell(`${copy}\ndiff -r site srv/site`);
    await rm(join(site, "0"), { recursive: true });
    await writeFile(join(site, "new"), "new");
    await using large = await open(join(site, "large"), "r+");
    await large.write("changed", LARGE_BYTES / 2);
    await shell(`${byContent}\ndiff -r site srv/site\n${back}\ndiff -r site back`);
  });

  const [through = "", clone = "", pullAndPush = ""] = await documented("git");
  const subjectOf = (where: string): Promise<string> => shell(`git -C ${where} log -1 --format=%s`);

  test("git clone, push and fetch work with a repository in the sandbox", async () => {
    await shell(`git init -q --bare -b main srv/project.git && git init -q -b main first && cd first && seq 100000 > numbers
git add . && ${PERSON} commit -qm first && git push -q ../srv/project.git main`);
    await shell(`${through}\n${clone}\ncmp first/numbers project/numbers
cd project && echo more >> numbers && ${PERSON} commit -qam second`);
    await shell(`${through}\n${pullAndPush}`);
    assert.equal(await subjectOf("srv/project.git"), "second");
    await shell(`git clone -q srv/project.git there && cd there && echo there > file && git add .
${PERSON} commit -qm third && git push -q`);
    await shell(`${through}\ncd project && git fetch && git merge -q --ff-only origin/main`);
    assert.equal(await subjectOf("project"), "third");
  });
  test("git clone over `rsh` fails and names the missing repository", async () => {
    await assert.rejects(shell(`${through}\n${clone.replaceAll("project", "absent")}`), /absent.git/);
  });

  const [shim = "", settings = "", call = ""] = await documented("Ansible");
  const before = `${shim}\n${settings}`;
  const raw = (line: string): string => call.replace("uname -s; exit 0", line);

  test("Ansible's raw module runs a line with quotes and prints its output", async () => {
    assert.match(await shell(`${before}\n${call}`), /box \| CHANGED \| rc=0 >>\nLinux\r?\n/);
    assert.match(await shell(`${before}\n${raw(`printf "%s|" "a  b" "$((1+1))"`)}`), /a {2}b\|2\|/);
  });
  test("Ansible reports a failed shell command's status and an unreachable agent", async () => {
    await assert.rejects(shell(`${before}\n${raw("echo why; exit 3")}`), /box \| FAILED \| rc=3 >>\nwhy/);
    const nowhere = "export GUESTCTL_ADDRESS=127.0.0.1:1 ANSIBLE_SSH_RETRIES=0";
    await assert.rejects(shell(`${before}\n${nowhere}\n${call}`), /box \| UNREACHABLE!/);
  });
}

/** Small files of different content, and a large one. */
async function writeTree(site: string): Promise<void> {
  for (let first = 0; first < FILES; first += FILES_PER_DIRECTORY) {
    const directory = join(site, String(first / FILES_PER_DIRECTORY));
    await mkdir(directory, { recursive: true });
    const numbers = Array.from({ length: FILES_PER_DIRECTORY }, (_, index) => first + index);
    await Promise.all(
      numbers.map((number) => writeFile(join(directory, String(number)), `${number}\n`.repeat(1 + (number % 50)))),
    );
  }
  await using large = await open(join(site, "large"), "w");
  for (let written = 0; written < LARGE_BYTES; written += MIB) await large.write(randomBytes(MIB));
}
