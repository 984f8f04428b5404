import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { chmod, chown, rm, symlink } from "node:fs/promises";
import { describe, it } from "node:test";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { exec } from "../../fixtures/exec-stream.ts";
import { replaceFile as put, testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { lacksCgroups } from "../../fixtures/namespaces.ts";
import { processGone } from "../../fixtures/proc.ts";
import { NEEDS_CREDIT } from "../../fixtures/privileges.ts";

const ENTROPY = new Uint8Array(64).fill(7);
/** SIGHUP is the workload's too. */
const WORKLOAD = ["sh", "-c", "trap '' HUP; echo workload has $KEY; exec sleep 1000"];
const HOOK = { args: ["sh", "-c", "echo $KEY $HOOK_KEY"] };

const directory = forAllTests(await testDirectory());

/** An agent with both specs in files, and what a host does to them. */
class Guest implements AsyncDisposable {
  readonly #own = mkdtempSync(directory.at("guest-"));
  readonly process = `${this.#own}/process.json`;
  readonly hooks = `${this.#own}/hooks.json`;
  agent!: RunningAgent;

  static async start(): Promise<Guest> {
    const guest = new Guest();
    await guest.putEnv({ KEY: "old", GONE: "1" });
    await put(guest.hooks, JSON.stringify({ post_restore: { ...HOOK, env: { HOOK_KEY: "old" } } }));
    const env = { SVC_PROCESS_SPEC_FILE: guest.process, SVC_HOOKS_SPEC_FILE: guest.hooks };
    guest.agent = await startAgent({ env });
    return guest;
  }

  putEnv(env: Record<string, string>, more: object = {}): Promise<void> {
    return put(this.process, JSON.stringify({ args: WORKLOAD, env, ...more }));
  }

  /** What a new command finds in these variables. */
  async seen(...names: readonly string[]): Promise<string> {
    const { stdout } = await exec(this.agent, {
      args: ["sh", "-c", `echo ${names.map((name) => `$${name}`).join(",")}`],
    });
    return String(stdout).trim();
  }

  async version(): Promise<number> {
    using client = clientOf(this.agent);
    return (await client.health()).processEnvVersion;
  }

  /** Runs the duties; returns `degraded`. */
  async duties(): Promise<string> {
    using client = clientOf(this.agent);
    return (await client.snapshots.duties({ entropy: ENTROPY })).degraded;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.agent[Symbol.asyncDispose]();
  }
}

describe("a replaced spec file", NEEDS_CREDIT, () => {
  it("a restore applies changed spec files to new commands and hooks", async () => {
    await using guest = await Guest.start();
    assert.deepEqual([await guest.seen("KEY", "GONE"), await guest.version()], ["old,1", 1]);
    await guest.putEnv({ KEY: "new" });
    await put(guest.hooks, JSON.stringify({ post_restore: { ...HOOK, env: { HOOK_KEY: "new" } } }));
    assert.equal(await guest.duties(), "");
    assert.deepEqual([await guest.seen("KEY", "GONE"), await guest.version()], ["new,", 2]);
    using client = clientOf(guest.agent);
    assert.equal((await client.snapshots.hook("post-restore")).stdoutTail, "new new\n");
    assert.equal(guest.agent.output.stdout, "workload has old\n");
    assert.equal(await guest.duties(), "");
    assert.equal(await guest.version(), 2, "files that have not changed count once");
  });

  it("SIGHUP or any call makes the agent read a changed spec file", async () => {
    await using guest = await Guest.start();
    await guest.putEnv({ KEY: "by signal" });
    guest.agent.kill("SIGHUP");
    const line = await guest.agent.logged("process_env_renewed");
    assert.deepEqual([line["cause"], line["version"], await guest.seen("KEY")], ["signal", 2, "by signal"]);
    await guest.putEnv({ KEY: "by itself" });
    await until(async () => (await guest.version()) === 3, "the changed file is noticed");
    assert.equal(await guest.seen("KEY"), "by itself");
  });

  it("after a spec file changes, ready_cmd gets the new variables", async () => {
    await using guest = await Guest.start();
    await guest.agent[Symbol.asyncDispose]();
    const ready = { ready_cmd: { args: ["sh", "-c", '[ "$KEY" = new ]'], interval_ms: 20 } };
    await guest.putEnv({ KEY: "old" }, ready);
    guest.agent = await startAgent({ env: { SVC_PROCESS_SPEC_FILE: guest.process } });
    await guest.putEnv({ KEY: "new" }, ready);
    guest.agent.kill("SIGHUP");
    using client = clientOf(guest.agent);
    await until(async () => (await client.health()).ready, "ready_cmd sees the new variable");
  });

  it("a changed spec file updates only variables; other changed fields are logged", async () => {
    await using guest = await Guest.start();
    await guest.putEnv(
      { KEY: "new" },
      { args: ["other"], cwd: "/tmp", user: "1", stop_grace_ms: 5, ready_cmd: { args: ["x"] } },
    );
    await put(guest.hooks, JSON.stringify({ post_restore: { args: ["other"] }, pre_snapshot: { args: ["new"] } }));
    assert.equal(await guest.duties(), "");
    assert.equal(await guest.seen("KEY", "HOOK_KEY", "(pwd)"), await guest.seen("KEY", "HOOK_KEY", "(pwd)"));
    const fields = guest.agent.log.filter(({ event }) => event === "spec_field_ignored").map((line) => line["field"]);
    assert.deepEqual(fields.map(String).toSorted(), [
      "SVC_HOOKS_SPEC_FILE: post_restore.args",
      "SVC_HOOKS_SPEC_FILE: pre_snapshot.args",
      "SVC_HOOKS_SPEC_FILE: pre_snapshot.cwd",
      "SVC_HOOKS_SPEC_FILE: pre_snapshot.user",
      "SVC_PROCESS_SPEC_FILE: args",
      "SVC_PROCESS_SPEC_FILE: cwd",
      "SVC_PROCESS_SPEC_FILE: ready_cmd",
      "SVC_PROCESS_SPEC_FILE: stop_grace_ms",
      "SVC_PROCESS_SPEC_FILE: user",
    ]);
    using client = clientOf(guest.agent);
    assert.equal((await client.snapshots.hook("post-restore")).stdoutTail, "new\n");
  });

  it("a changed spec may have 60,000 variables within 1 MiB", async () => {
    await using guest = await Guest.start();
    const many = Object.fromEntries(Array.from({ length: 60_000 }, (_, index) => [`V${index}`, ""]));
    await guest.putEnv(many);
    assert.equal(await guest.duties(), "");
    const { stdout } = await exec(guest.agent, {
      args: ["sh", "-c", "env | grep -c '^V[0-9]'"],
    });
    assert.equal(String(stdout), "60000\n");
  });
});

describe("a spec file that cannot be used", NEEDS_CREDIT, () => {
  const SECRET = "a-secret-value";
  const spec = (env: string): string => `{"args":["sleep","1000"],"env":${env}}`;
  const users = `${directory.path}/users-own`;
  for (const [what, problem, replace] of [
    ["is missing", /which user \d+ cannot read \(ENOENT\)/, ({ process }) => rm(process)],
    ["exceeds 1 MiB", /more than 1 MiB/, ({ process }) => put(process, spec(`{"A":"${SECRET.repeat(80_000)}"}`))],
    ["is not valid JSON", /not valid JSON/, ({ process }) => put(process, `{${SECRET}`)],
    ["names __proto__", /__proto__/, ({ process }) => put(process, spec(`{"__proto__":"${SECRET}"}`))],
    [
      "is a FIFO",
      /regular file/,
      async ({ process }) => {
        await rm(process);
        execFileSync("mkfifo", [process]);
      },
    ],
    ["is a user's own", /of user 12345: root must own it/, ({ process }) => chown(process, 12345, 12345)],
    ["may be written by others", /group or others may write/, ({ process }) => chmod(process, 0o622)],
    [
      "links to a user's file",
      /of user 12345/,
      async ({ process }) => {
        await put(users, spec(`{"KEY":"${SECRET}"}`));
        await chown(users, 12345, 12345);
        await rm(process);
        await symlink(users, process);
      },
    ],
  ] as readonly (readonly [string, RegExp, (guest: Guest) => Promise<void>])[]) {
    it(`a spec that ${what} keeps the old variables`, async () => {
      await using guest = await Guest.start();
      await replace(guest);
      assert.equal(await guest.duties(), "process_env:refused");
      assert.deepEqual([await guest.seen("KEY", "GONE"), await guest.version()], ["old,1", 1]);
      assert.match(String((await guest.agent.logged("process_env_refused"))["problem"]), problem);
      assert.doesNotMatch(JSON.stringify(guest.agent.log), new RegExp(SECRET));
    });
  }
});

describe("two replaced spec files of which one cannot be used", NEEDS_CREDIT, () => {
  it("a changed hooks spec applies although the process spec is refused", async () => {
    await using guest = await Guest.start();
    await put(guest.process, "{");
    await put(guest.hooks, JSON.stringify({ post_restore: { ...HOOK, env: { HOOK_KEY: "new" } } }));
    assert.equal(await guest.duties(), "process_env:refused");
    using client = clientOf(guest.agent);
    assert.equal((await client.snapshots.hook("post-restore")).stdoutTail, "old new\n");
    assert.equal(await guest.version(), 1, "commands have no new variables");
    await guest.putEnv({ KEY: "new" });
    assert.equal(await guest.duties(), "");
    assert.deepEqual([await guest.seen("KEY"), await guest.version()], ["new", 2]);
  });

  it("a changed process spec applies although the hooks spec is refused", async () => {
    await using guest = await Guest.start();
    await guest.putEnv({ KEY: "new" });
    await put(guest.hooks, "{");
    assert.equal(await guest.duties(), "process_env:refused");
    assert.deepEqual([await guest.seen("KEY", "GONE"), await guest.version()], ["new,", 2]);
    using client = clientOf(guest.agent);
    assert.equal((await client.snapshots.hook("post-restore")).stdoutTail, "new old\n");
    assert.equal(await guest.duties(), "process_env:refused");
    assert.equal(await guest.version(), 2, "values that are in use already count once");
  });
});

describe("restore steps with keepFrozen", NEEDS_CREDIT, () => {
  it("`keepFrozen` lets the host write a fork's spec before the thaw", async (t) => {
    await using guest = await Guest.start();
    if (lacksCgroups(t, guest.agent)) return;
    const { agent } = guest;
    using before = clientOf(agent);
    assert.equal((await before.snapshots.prepare({ freezeMs: 600_000 })).frozen, true);
    using first = clientOf(agent);
    const kept = await first.snapshots.duties({ entropy: ENTROPY, keepFrozen: true });
    assert.deepEqual([kept.frozen, kept.degraded, kept.entropyBytesMixed], [true, "", 64]);
    using client = clientOf(agent);
    assert.equal((await client.health()).frozen, true);
    await client.files.writeFile(guest.process, JSON.stringify({ args: WORKLOAD, env: { KEY: "of the fork" } }), {
      mode: 0o600,
    });
    using second = clientOf(agent);
    const thawed = await second.snapshots.duties({ entropy: ENTROPY });
    assert.deepEqual([thawed.frozen, thawed.degraded], [false, ""]);
    assert.deepEqual([await guest.seen("KEY"), await guest.version()], ["of the fork", 2]);
  });

  it("a freeze ends after freeze_ms even if restore steps use `keepFrozen`", async (t) => {
    await using guest = await Guest.start();
    if (lacksCgroups(t, guest.agent)) return;
    using before = clientOf(guest.agent);
    assert.equal((await before.snapshots.prepare({ freezeMs: 1_500 })).frozen, true);
    using first = clientOf(guest.agent);
    assert.equal((await first.snapshots.duties({ entropy: ENTROPY, keepFrozen: true })).frozen, true);
    await guest.agent.logged("thawed_without_duties");
    using client = clientOf(guest.agent);
    const { frozen, thawedWithoutDuties } = await client.health();
    assert.deepEqual([frozen, thawedWithoutDuties], [false, true]);
  });

  it("after `keepFrozen`, a session thaws only once its spec is valid", async (t) => {
    await using guest = await Guest.start();
    if (lacksCgroups(t, guest.agent)) return;
    const { agent } = guest;
    using before = clientOf(agent);
    assert.equal((await before.snapshots.prepare({ freezeMs: 600_000 })).frozen, true);
    using first = clientOf(agent);
    assert.equal((await first.snapshots.duties({ entropy: ENTROPY, keepFrozen: true })).frozen, true);
    for (const broken of ["", "{", `{"args":[],"env":{"KEY":1}}`]) {
      await put(guest.process, broken);
      using client = clientOf(agent);
      const { frozen, degraded } = await client.snapshots.duties({ entropy: ENTROPY });
      assert.deepEqual([frozen, degraded], [true, "process_env:refused"]);
      using looking = clientOf(agent);
      assert.deepEqual([(await looking.health()).frozen, await guest.version()], [true, 1]);
      await assert.rejects(looking.run(["true"]), { reason: "SESSION_FROZEN", message: /replace the file/ });
      await assert.rejects(looking.snapshots.hook("post-restore"), { reason: "SESSION_FROZEN" });
    }
    await guest.putEnv({ KEY: "repaired" });
    using last = clientOf(agent);
    const thawed = await last.snapshots.duties({ entropy: ENTROPY });
    assert.deepEqual([thawed.frozen, thawed.degraded], [false, ""]);
    assert.deepEqual([await guest.seen("KEY"), await guest.version()], ["repaired", 2]);
  });

  it("a `keepFrozen` session whose spec was refused is killed at freeze expiry", async (t) => {
    await using guest = await Guest.start();
    if (lacksCgroups(t, guest.agent)) return;
    const { agent } = guest;
    using before = clientOf(agent);
    const kept = before.start(["sleep", "1000"], { keep: { name: "kept" } });
    const pid = await kept.started;
    await kept.detach();
    assert.equal((await before.snapshots.prepare({ freezeMs: 2_000 })).frozen, true);
    await put(guest.process, "{");
    using first = clientOf(agent);
    assert.equal((await first.snapshots.duties({ entropy: ENTROPY, keepFrozen: true })).frozen, true);
    assert.deepEqual(await agent.exited, { code: 137, signal: null });
    const { processes } = await agent.logged("freeze_expired");
    assert.equal(processes, 2);
    assert.match(String((await agent.logged("agent_ended"))["reason"]), /killed it while it was frozen/);
    assert.equal(
      agent.log.some(({ event }) => event === "thawed_without_duties"),
      false,
    );
    await processGone(pid);
  });

  it("restore steps with `keepFrozen` leave a running session running", async () => {
    await using guest = await Guest.start();
    using client = clientOf(guest.agent);
    assert.equal((await client.snapshots.duties({ entropy: ENTROPY, keepFrozen: true })).frozen, false);
    assert.equal(await guest.seen("KEY"), "old");
  });
});
