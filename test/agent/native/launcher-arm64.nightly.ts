import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { COMPILED_ONCE } from "../../../scripts/testing/compiled.ts";
import { type LauncherBundle, makeLauncherBundle } from "../../fixtures/launcher-bundle.ts";
import { noNamespaces } from "../../fixtures/namespaces.ts";

const AGENT = [...COMPILED_ONCE, join(import.meta.dirname, "..", "..", "fixtures", "launched.ts")];
const EMULATOR = "qemu-aarch64-static";
const TIMEOUT_MS = 500_000;

/** Why the launcher for arm64 cannot be run here; undefined: it can. */
function notRunnable(): string | undefined {
  if (spawnSync(EMULATOR, ["--version"]).error !== undefined) return `needs ${EMULATOR} (Debian: qemu-user-static)`;
  const compiler = spawnSync("aarch64-linux-gnu-gcc", ["--version"]);
  return compiler.error === undefined ? undefined : "needs aarch64-linux-gnu-gcc (Debian: g++-aarch64-linux-gnu)";
}

const refused = notRunnable();

/** Emulated, with a native process in place of the agent: this tests the launcher itself. */
describe("the launcher for arm64, emulated", { skip: refused ?? false }, () => {
  let bundle: LauncherBundle;
  before(() => {
    bundle = makeLauncherBundle({ arch: "arm64" });
  });
  after(() => bundle[Symbol.dispose]());

  function run(...args: string[]): { status: number | null; signal: string | null; stdout: string; stderr: string } {
    return spawnSync(EMULATOR, [bundle.launcher, ...AGENT, ...args], { encoding: "utf8", timeout: TIMEOUT_MS });
  }

  test("mirrors exit codes and deaths by a signal", () => {
    for (const code of [0, 42, 255]) assert.equal(run("exit", String(code)).status, code);
    assert.equal(run("die", "15").signal, "SIGTERM");
    assert.equal(run("die", "9").signal, "SIGKILL");
  });

  test("hands the environment over in memory, and gives the agent none of the image's", () => {
    const env = { ...process.env, SECRET: "marker-7c2e", NODE_OPTIONS: "--no-such-option" };
    const survey = spawnSync(EMULATOR, [bundle.launcher, ...AGENT, "survey"], { env, encoding: "utf8" });
    const { environment } = JSON.parse(survey.stdout) as { environment: Record<string, string> };
    assert.equal(environment["GUEST_AGENT_DIR"], bundle.folder);
    assert.ok(!("SECRET" in environment) && !("NODE_OPTIONS" in environment));
    const handed = spawnSync(EMULATOR, [bundle.launcher, ...AGENT, "environ"], { env, encoding: "utf8" });
    assert.ok(handed.stdout.split("\0").includes("SECRET=marker-7c2e"));
  });

  test("passes signals on, real-time ones too", async () => {
    const child = spawn(EMULATOR, [bundle.launcher, ...AGENT, "signals", "1000"], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const seen = new Set<string>();
    createInterface({ input: child.stdout }).on("line", (line) => seen.add(line));
    // The emulator keeps some real-time signals and renumbers the others. It loses a signal that comes while the
    // launcher does not wait for one, so each is sent until it arrives.
    for (const signal of [1, 2, 3, 10, 12, 15, 18, 20, 28, 40]) {
      const arrived = (): boolean =>
        signal < 32 ? seen.has(`signal ${signal}`) : [...seen].some((line) => /^signal (3[2-9]|4\d)$/.test(line));
      while (!arrived()) {
        await delay(100);
        if (seen.size > 0) process.kill(child.pid ?? 0, signal);
      }
    }
    const agent = [...seen].map((line) => /^ready (\d+)/.exec(line)?.[1]).find(Boolean);
    process.kill(Number(agent), "SIGKILL");
    await once(child, "close");
  });

  // The emulator knows no subreaper, so orphans come to the launcher only where it is the first process.
  describe("as PID 1", { skip: noNamespaces() ?? false }, () => {
    function runFirst(...args: string[]): { status: number | null; stdout: string; stderr: string } {
      const first = ["-pf", "--kill-child", "--mount-proc", EMULATOR, bundle.launcher, ...AGENT, ...args];
      return spawnSync("unshare", first, { encoding: "utf8", timeout: TIMEOUT_MS });
    }

    test("reaps orphans", () => {
      assert.match(runFirst("orphans", "20").stdout, /^zombies 0$/m);
    });

    test("ends what a killed agent left, in sessions of their own too", () => {
      const script = 'trap "echo told >&2; exit" TERM; (setsid sleep 1000 &); echo set; while :; do sleep 0.05; done';
      const { stderr, status } = runFirst("crash", script);
      assert.match(stderr, /killed by signal 9/);
      assert.match(stderr, /^told$/m);
      assert.equal(status, 137);
    });
  });
});
