import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as turn } from "node:timers/promises";
import { execa } from "execa";
import { COMPILED_ONCE } from "../../scripts/testing/compiled.ts";
import { NEEDS_FUSE } from "../fixtures/privileges.ts";

const root = join(import.meta.dirname, "../..");
const suite = (name: string): string => join("test/house/fixtures/suites", `${name}.ts`);

async function runTests(names: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const args = [...COMPILED_ONCE, "scripts/test.ts", ...names.map(suite)];
  const run = await execa(process.execPath, args, { cwd: root, env: { CI: "", ...env }, reject: false });
  return { code: run.exitCode, output: `${run.stdout}\n`, lastLine: run.stdout.split("\n").at(-1) ?? "" };
}

/** The state letter of proc_pid_stat(5); undefined for a process that has ended. */
function processState(pid: number): string | undefined {
  const path = `/proc/${pid}/stat`;
  return existsSync(path) ? readFileSync(path, "latin1").split(") ").at(-1)?.[0] : undefined;
}

describe("npm test", () => {
  const CI = { CI: "true" };
  const HANGS = { TEST_SILENCE_MS: "4000" };
  const RUNS: readonly (readonly [
    title: string,
    files: readonly string[],
    lastLine: RegExp,
    code: number,
    says?: readonly RegExp[],
    env?: NodeJS.ProcessEnv,
  ])[] = [
    [
      "npm test counts tests, not suites, and succeeds if none failed",
      ["passing"],
      /^3 passed, 0 failed, 0 skipped$/,
      0,
    ],
    [
      "npm test fails if one test failed and names it twice",
      ["passing", "failing"],
      /^4 passed, 1 failed, 0 skipped$/,
      1,
      [
        /FAILED\n {2}test\/house\/fixtures\/suites\/failing\.ts: a suite > this test fails\n/,
        /^ {2}✖ a suite > this test fails \(/m,
      ],
    ],
    [
      "npm test lists skipped tests with their reasons",
      ["passing", "skipping"],
      /^3 passed, 0 failed, 4 skipped$/,
      0,
      [/SKIPPED\n.*: this test is skipped \(needs root\)\n.*: this test skips itself \(needs KVM\)\n/],
    ],
    [
      "npm test in CI counts skipped tests as failures unless hardware is missing",
      ["passing", "skipping"],
      /^3 passed, 3 failed, 1 skipped$/,
      1,
      [/is skipped \(skipped, needs root: not accepted in CI\)/],
      CI,
    ],
    ["npm test runs a file in its own network if it asks", ["own-network"], /^1 passed, 0 failed, 0 skipped$/, 0],
    [
      "npm test shows the error of a test whose disposal fails too",
      ["suppressing"],
      /^0 passed, 1 failed, 0 skipped$/,
      1,
      [/Error: the cause\n[^]*and then, during disposal: Error: the disposal\n/],
    ],
    ["npm test fails for a file without tests", ["passing", "empty"], /^3 passed, 1 failed, 0 skipped$/, 1],
    ["npm test fails for a file that exits before its tests end", ["exiting"], /^0 passed, 1 failed, 0 skipped$/, 1],
    [
      "npm test kills a silent file and counts a failure",
      ["hanging"],
      /^[01] passed, 1 failed, 0 skipped$/,
      1,
      [/was killed: it reported no test for 4 s, after/],
      HANGS,
    ],
  ];
  for (const [title, files, lastLine, code, says = [], env = {}] of RUNS)
    test(title, async () => {
      const run = await runTests(files, env);
      assert.match(run.lastLine, lastLine);
      for (const pattern of says) assert.match(run.output, pattern);
      assert.equal(run.code, code);
    });

  test("npm test kills a test file's leftover process and reports a failure", async () => {
    const run = await runTests(["leaking"]);
    assert.equal(run.lastLine, "1 passed, 1 failed, 0 skipped");
    const pid = Number(/left process (\d+) behind: sleep 600\.25/.exec(run.output)?.[1]);
    assert.ok(pid > 1, run.output);
    assert.ok([undefined, "Z"].includes(processState(pid)));
    assert.equal(run.code, 1);
  });

  test("npm test detaches a test file's leftover mount and reports a failure", NEEDS_FUSE, async () => {
    const run = await runTests(["mounting", "passing"]);
    assert.equal(run.lastLine, "4 passed, 1 failed, 0 skipped");
    const [, path = ""] = /left a mount behind: (\S+)/.exec(run.output) ?? [];
    assert.match(path, /\/hung$/);
    assert.ok(!readFileSync("/proc/self/mounts", "utf8").includes(path));
    assert.ok(!existsSync(path));
    assert.equal(run.code, 1);
  });

  test("npm test exits with 143 at SIGTERM, after killing its children", async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "test-runner-"));
    t.after(() => rmSync(directory, { recursive: true }));
    const waiting = join(directory, "waiting");
    const runner = spawn(process.execPath, [...COMPILED_ONCE, "scripts/test.ts", suite("waiting")], {
      cwd: root,
      env: { ...process.env, WAITING: waiting },
      stdio: "ignore",
    });
    const ended = once(runner, "exit") as Promise<[number | null]>;
    while (!existsSync(waiting)) await turn(20);
    const left = JSON.parse(readFileSync(waiting, "utf8")) as { readonly pids: number[]; readonly directory: string };
    runner.kill("SIGTERM");
    const [code] = await ended;
    assert.equal(code, 128 + 15);
    for (const pid of left.pids) assert.ok([undefined, "Z"].includes(processState(pid)), String(pid));
    assert.equal(existsSync(left.directory), false);
  });
});

describe("a contained script", () => {
  test("at SIGTERM, runContained removes the script's two temporary directories", async () => {
    const script = join(import.meta.dirname, "fixtures/contained.ts");
    const { GUEST_AGENT_TEST_MARK: _own, ...env } = process.env;
    const outer = spawn(process.execPath, [script], { env, stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(outer, "exit") as Promise<[number | null]>;
    const [line] = (await once(outer.stdout.setEncoding("utf8"), "data")) as [string];
    const directories = JSON.parse(line) as string[];
    assert.deepEqual(directories.map(existsSync), [true, true]);
    outer.kill("SIGTERM");
    assert.deepEqual(await ended, [128 + 15, null]);
    assert.deepEqual(directories.map(existsSync), [false, false]);
  });
});
