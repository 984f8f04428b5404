import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { promisify } from "node:util";
import { type RunningAgent, startAgent } from "../../../fixtures/agent.ts";
import { until } from "../../../fixtures/awake.ts";
import { DirectoryMirror } from "../../../fixtures/directory-replica.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { clientOf } from "../../../fixtures/guest-client.ts";
import { script } from "../../../fixtures/programs/index.ts";

const run = promisify(execFile);
const NEEDS_INOTIFYWAIT = {
  skip: spawnSync("inotifywait", ["--help"]).error === undefined ? false : "needs inotifywait (inotify-tools)",
} as const;
const ROOT = join(import.meta.dirname, "../../../..");
const DIRECTORIES = 50_000;

/** Processor time of a process in milliseconds, and its resident memory in bytes (proc_pid_stat(5)). */
function usedBy(pid: number): { readonly cpuMs: number; readonly bytes: number } {
  const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]?.split(" ") ?? [];
  return { cpuMs: 10 * (Number(fields[11]) + Number(fields[12])), bytes: 4_096 * Number(fields[21]) };
}

/** inotifywait -rm of a directory, once its watches are established. */
async function inotifywait(path: string): Promise<ChildProcess & { readonly pid: number }> {
  const child = spawn("inotifywait", ["-rm", path], { stdio: ["ignore", "pipe", "pipe"] });
  child.stdout.resume();
  let said = "";
  child.stderr.on("data", (bytes: Buffer) => (said += bytes.toString()));
  await until(() => said.includes("Watches established"), "inotifywait watches");
  return child as ChildProcess & { readonly pid: number };
}

/** Watches a directory beside inotifywait while it changes. A replica of it must be the same in the end. */
async function judge(
  t: TestContext,
  agent: RunningAgent,
  root: string,
  change: () => Promise<unknown>,
): Promise<{ readonly agentMs: number; readonly toolMs: number }> {
  using client = clientOf(agent);
  const replica = new DirectoryMirror(root);
  const watch = client.files.watch(root, { recursive: true });
  assert.equal((await watch.next()).value?.eventType, "ready");
  const reading = (async () => {
    for await (const event of watch) replica.follow(event);
  })().catch((error: unknown) => error);
  const tool = await inotifywait(root);
  const [agentBefore, toolBefore] = [usedBy(agent.pid).cpuMs, usedBy(tool.pid).cpuMs];
  await change();
  await until(
    () => replica.differences().length === 0,
    () => replica.differences().slice(0, 20).join("\n"),
  );
  const used = { agentMs: usedBy(agent.pid).cpuMs - agentBefore, toolMs: usedBy(tool.pid).cpuMs - toolBefore };
  tool.kill();
  await once(tool, "exit");
  await watch.return?.();
  await reading;
  t.diagnostic(
    `${replica.events} events, ${replica.rescans.length} rescans; CPU: agent ${used.agentMs} ms, inotifywait ${used.toolMs} ms`,
  );
  return used;
}

describe("a watch, compared with inotifywait", NEEDS_INOTIFYWAIT, () => {
  it("watch events keep a copy up to date during 10,000 random operations", async (t) => {
    await using agent = await startAgent();
    await using directory = await testDirectory();
    const [root, outside] = [directory.at("watched"), directory.at("outside")];
    for (const path of [root, outside]) mkdirSync(path);
    const [program = "", ...args] = script("random-changes", root, outside, "10000", "75");
    await judge(t, agent, root, () => run(program, args));
  });

  it("watch events keep a copy up to date during git checkouts", async (t) => {
    await using agent = await startAgent();
    await using directory = await testDirectory();
    const git = (...args: string[]): Promise<unknown> => run("git", ["-C", directory.path, ...args]);
    await run("git", ["clone", "-q", "--no-hardlinks", ROOT, directory.at("clone")]);
    await judge(t, agent, directory.path, async () => {
      await git("-C", "clone", "checkout", "-q", "HEAD~40");
      await git("-C", "clone", "checkout", "-q", "-");
      await git("clone", "-q", "--no-hardlinks", ROOT, "second");
    });
  });

  it("watch events keep a copy up to date during npm install", async (t) => {
    await using agent = await startAgent();
    await using directory = await testDirectory();
    const packages = ["one", "two", "three"].map((name) => {
      mkdirSync(directory.at(`${name}/lib/deep`), { recursive: true });
      writeFileSync(directory.at(`${name}/package.json`), JSON.stringify({ name, version: "1.0.0" }));
      for (let index = 0; index < 100; index++) writeFileSync(directory.at(`${name}/lib/deep/${index}.js`), "x");
      return directory.at(name);
    });
    mkdirSync(directory.at("app"));
    writeFileSync(directory.at("app/package.json"), "{}");
    const options = { cwd: directory.at("app"), env: { ...process.env, npm_config_cache: directory.at("cache") } };
    const npm = join(ROOT, "node_modules/.bin/npm");
    const install = ["install", "--offline", "--install-links", "--no-audit", "--no-fund", ...packages];
    await judge(t, agent, directory.at("app"), async () => {
      await run("npm", install, options).catch(() => run(npm, install, options));
      await run("rm", ["-rf", "node_modules"], options);
      await run("npm", ["install", "--offline", "--install-links", "--no-audit", "--no-fund"], options);
    });
  });

  it("watch events keep a copy up to date during a make build", async (t) => {
    await using agent = await startAgent();
    await using directory = await testDirectory();
    mkdirSync(directory.at("src"));
    for (let index = 0; index < 40; index++)
      writeFileSync(directory.at(`src/f${index}.c`), `int f${index}(void) { return ${index}; }\n`);
    writeFileSync(
      directory.at("Makefile"),
      `OBJECTS = $(patsubst src/%.c,build/%.o,$(wildcard src/*.c))
build/all.a: $(OBJECTS)
\tar rcs $@ $^
build/%.o: src/%.c
\tmkdir -p build && gcc -c -o $@ $<
clean:
\trm -rf build
`,
    );
    await judge(t, agent, directory.path, async () => {
      for (const target of ["build/all.a", "clean", "build/all.a"])
        await run("make", ["-j2", target], { cwd: directory.path });
    });
  });
});

describe("the cost of a watch, compared with inotifywait", NEEDS_INOTIFYWAIT, () => {
  it("a watch uses at most 100 µs of CPU time per change", async (t) => {
    await using agent = await startAgent();
    await using directory = await testDirectory();
    for (let index = 0; index < 100; index++) mkdirSync(directory.at(`d${index}`));
    const change = "for r in 1 2; do for i in $(seq 100); do for d in d*; do : > $d/$i; done; done; rm -f d*/*; done";
    // The first run compiles and loads what it runs.
    await judge(t, agent, directory.path, () => run("bash", ["-c", change], { cwd: directory.path }));
    const { agentMs, toolMs } = await judge(t, agent, directory.path, () =>
      run("bash", ["-c", change], { cwd: directory.path }),
    );
    // About ten times inotifywait's, which neither keeps a tree nor encrypts: a bound against regressions.
    assert.ok(agentMs <= 6_000, `${agentMs} ms, and ${toolMs} ms of inotifywait`);
  });

  it(`a watch of ${DIRECTORIES} directories uses at most 20 MB when the agent is at rest again`, async (t) => {
    await using agent = await startAgent();
    await using directory = await testDirectory();
    for (let index = 0; index < DIRECTORIES; index++)
      mkdirSync(directory.at(`a${index % 50}/directory-${index}`), { recursive: true });
    using client = clientOf(agent);
    // What any first watch needs.
    const first = client.files.watch(directory.at("a0"));
    await first.next();
    const before = usedBy(agent.pid);
    const watch = client.files.watch(directory.path, { recursive: true });
    await watch.next();
    const grownMb = (): number => (usedBy(agent.pid).bytes - before.bytes) / 1e6;
    // Half of this is garbage of the first listing, which the agent frees after ten seconds without work.
    t.diagnostic(
      `${grownMb().toFixed(1)} MB after the first listing, ${usedBy(agent.pid).cpuMs - before.cpuMs} ms of CPU`,
    );
    await until(
      () => grownMb() <= 20,
      () => `${grownMb()} MB`,
    );
    t.diagnostic(`${grownMb().toFixed(1)} MB at rest`);
    await watch.return?.();
    await first.return?.();
  });
});
