import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmod, chown, mkdir, readdir, readFile, rm, symlink, truncate, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { providePrograms } from "../../../scripts/machine/programs.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { guestctlVariables, runGuestctl, startGuestctl, startIssuedAgent } from "./guestctl.ts";

const agent = forAllTests(await startIssuedAgent({ process: { env: { PATH: "/nowhere" } } }));
const directory = forAllTests(await testDirectory());
const env = guestctlVariables(agent);
const TEMPORARY = /svc-guest|guestctl-|\.tmp/;

/** Copies with -p, because a plain copy to this host gets the modes that the umask allows. */
async function copy(from: string, to: string): Promise<void> {
  assert.deepEqual(await runGuestctl(["cp", "-p", from, to], env), { stdout: "", stderr: "", exitCode: 0 });
}

/** The judge: what rsync would still have to do, and what diff finds. */
function assertSame(one: string, other: string): void {
  // A copy has no owners and no hard links, and a link of this machine no time.
  const options = ["-rlptD", "--omit-link-times", "--checksum", "--delete", "--dry-run", "--itemize-changes"];
  assert.equal(execFileSync("rsync", [...options, `${one}/`, other], { encoding: "utf8" }), "");
  assert.equal(spawnSync("diff", ["-r", "--no-dereference", one, other], { encoding: "utf8" }).stdout, "");
}

function git(at: string, ...args: readonly string[]): string {
  const identity = ["-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "safe.directory=*"];
  return execFileSync("git", [...identity, ...args], { cwd: at, encoding: "utf8" });
}

function lacks(t: TestContext, ...names: readonly string[]): boolean {
  const missing = providePrograms(
    names.map((name) => ({ name, package: name })),
    "for the judges of a copied tree",
  );
  if (missing.length > 0) t.skip(`needs ${missing.map(({ name }) => name).join(", ")}`);
  return missing.length > 0;
}

/** 5,000 small files in 500 directories, and all shapes that a copy keeps. */
async function makeTree(root: string): Promise<void> {
  const old = new Date("2001-02-03T04:05:06Z");
  for (let at = 0; at < 500; at += 1) {
    const sub = join(root, `packages/${at % 20}/node_modules/package-${at}`);
    await mkdir(sub, { recursive: true });
    await Promise.all(
      Array.from({ length: 10 }, (_, index) => writeFile(join(sub, `${index}.js`), randomBytes(at * 10))),
    );
  }
  for (const sizeBytes of [0, 1, 65_535, 65_536, 65_537, 262_144, 262_145, 5_000_000])
    await writeFile(join(root, `size-${sizeBytes}`), randomBytes(sizeBytes));
  await writeFile(join(root, "sparse"), "end");
  await truncate(join(root, "sparse"), 8_000_000);
  await mkdir(join(root, "empty/in/empty"), { recursive: true });
  await mkdir(join(root, ...Array.from({ length: 15 }, () => "d".repeat(100))), { recursive: true });
  const names = [
    "line\nfeed",
    " ",
    "-rf",
    "*",
    "\u001b[31m",
    ".hidden",
    "…ü",
    "n".repeat(255),
    ".svc-guest-mine",
    "a\\b",
  ];
  for (const name of names) await writeFile(join(root, name), name);
  await writeFile(Buffer.concat([Buffer.from(`${root}/`), Buffer.of(0xff, 0xfe)]), "no UTF-8");
  await symlink("size-1", join(root, "link"));
  await symlink("/nowhere/at/all", join(root, "dangling"));
  await symlink("..", join(root, "packages/up"));
  await symlink("link-to-itself", join(root, "link-to-itself"));
  for (const mode of [0o000, 0o400, 0o755, 0o1777 & 0o777, 0o640]) {
    await writeFile(join(root, `mode-${mode}`), "");
    await chmod(join(root, `mode-${mode}`), mode);
  }
  await mkdir(join(root, "closed"));
  await writeFile(join(root, "closed/inside"), "");
  await chmod(join(root, "closed"), 0o555);
  await chown(join(root, "size-1"), 1234, 5678);
  for (const name of ["size-0", "packages/3", "closed"]) await utimes(join(root, name), old, old);
  await utimes(join(root, "size-1"), -1_000, -1_000);
}

describe("guestctl cp of trees", NEEDS_ROOT, () => {
  it("a copied git tree satisfies `rsync --checksum`, `diff -r` and `git fsck`", async (t) => {
    if (lacks(t, "rsync", "git")) return;
    const [source, guest, back] = ["source", "guest", "back"].map((name) => directory.at(name)) as [
      string,
      string,
      string,
    ];
    await makeTree(source);
    git(source, "init", "-q");
    git(source, "add", ".");
    git(source, "commit", "-qm", "all of it");
    await copy(source, `:${guest}`);
    assertSame(source, guest);
    await copy(`:${guest}`, back);
    assertSame(source, back);
    for (const at of [guest, back]) {
      git(at, "fsck", "--full", "--strict");
      assert.equal(git(at, "status", "--porcelain"), "");
    }
    await writeFile(join(source, "size-1"), "changed");
    // Into the directory that is there, as cp(1).
    await copy(`${source}/.`, `:${guest}`);
    assertSame(source, guest);
  });

  it("a killed `cp` leaves no partial file and can be repeated", async () => {
    const [source, guest] = [directory.at("cut"), directory.at("cut-guest")];
    const small = Buffer.alloc(3_000, "x");
    const large = Buffer.alloc(300_000, "y");
    await mkdir(source);
    for (let at = 0; at < 6_000; at += 1) await writeFile(join(source, `${at}`), at % 50 === 0 ? large : small);
    let cut = 0;
    for (const atLeast of [0, 1, 2, 50, 300, 700, 1_500, 2_500, 4_000, 5_500]) {
      await rm(guest, { recursive: true, force: true });
      const running = startGuestctl(["cp", source, `:${guest}`], env);
      const written = (): Promise<string[]> => readdir(guest).catch(() => []);
      const ended = new AbortController();
      void running.ended.then(() => ended.abort());
      while (!ended.signal.aborted && (await written()).length < atLeast);
      running.kill("SIGKILL");
      if ((await running.ended) !== 0) cut += 1;
      // The agent ends the call when it sees the connection end: what lies there no longer changes then.
      await agentHasNoCalls();
      for (const name of await written()) {
        assert.doesNotMatch(name, TEMPORARY);
        assert.ok((await readFile(join(guest, name))).equals(Number(name) % 50 === 0 ? large : small), name);
      }
    }
    assert.ok(cut >= 5, `${cut} copies were cut`);
    await copy(`${source}/.`, `:${guest}`);
    assert.equal(spawnSync("diff", ["-r", source, guest], { encoding: "utf8" }).stdout, "");
  });
});

/** Resolves when the agent holds none of the test's files: its descriptors of the directory are those of calls. */
async function agentHasNoCalls(): Promise<void> {
  const held = (): string =>
    spawnSync("find", [`/proc/${agent.pid}/fd`, "-lname", `${directory.path}*`], { encoding: "utf8" }).stdout;
  while (held() !== "") await new Promise((resolve) => setImmediate(resolve));
}
