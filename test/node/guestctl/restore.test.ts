import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { listener } from "../../fixtures/listeners.ts";
import { NEEDS_CREDIT } from "../../fixtures/privileges.ts";
import { startGuestWithClock, startStandIn } from "../../fixtures/stand-in-agent.ts";
import { assertRefused, GUESTCTL_LINE, guestctlVariables, runGuestctl, startIssuedAgent } from "./guestctl.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";

/** An agent that may not step this machine's clock. */
const WITHOUT_CLOCK = { through: ["setpriv", "--bounding-set=-sys_time"] };

const HOOKS = {
  pre_snapshot: { args: ["sh", "-c", "echo out; echo err >&2; exit 3"] },
  post_restore: { args: ["sh", "-c", "echo restored; sleep ${PAUSE:-0}"] },
};

/** A credential directory for an agent that checks none. */
const credentials = forAllTests(await testDirectory());
await writeFile(credentials.at("token"), "any");

describe("guestctl hook", () => {
  test("`guestctl hook` runs a hook, prints its output and returns its status", async () => {
    await using agent = await startIssuedAgent({ hooks: HOOKS });
    const env = guestctlVariables(agent);
    const pre = await runGuestctl(["hook", "pre-snapshot"], env);
    assert.deepEqual([pre.exitCode, pre.stdout, pre.stderr], [3, "out\n", "err\n"]);
    const post = await runGuestctl(["hook", "post-restore", "--json"], env);
    assert.equal(post.exitCode, 0);
    const { usage, duration_ms: durationMs, ...told } = JSON.parse(post.stdout) as Record<string, unknown>;
    assert.match(JSON.stringify(usage), /"cpu_scope":"USAGE_SCOPE_(?:TREE|PROCESS)"/);
    assert.equal(typeof durationMs, "number");
    assert.deepEqual(told, {
      ran: true,
      oom_killed: false,
      timed_out: false,
      exit_code: 0,
      stdout_tail: "restored\n",
      stderr_tail: "",
      frozen: false,
      frozen_processes: 0,
      freeze_problem: "",
    });
  });

  test("`guestctl hook` at a terminal shows the seconds waited, then the hook's duration", async () => {
    await using directory = await testDirectory();
    const script = `echo begun > ${directory.at("begun")}; until test -e ${directory.at("go")}; do sleep 0.05; done; echo out`;
    await using agent = await startIssuedAgent({ hooks: { pre_snapshot: { args: ["sh", "-c", script] } } });
    await using terminal = new Terminal({ command: ["sh"], cols: 100, rows: 10, env: guestctlVariables(agent) });
    terminal.type(`${GUESTCTL_LINE} hook pre-snapshot; echo status-$?\n`);
    await terminal.read(/\rhook pre-snapshot {2}0 s\p{Cc}\[K[^\n]*\rhook pre-snapshot {2}1 s\p{Cc}\[K/u);
    await writeFile(directory.at("go"), "");
    await terminal.read(/\r\p{Cc}\[Kguestctl: the pre-snapshot hook took \d+\.\d s\r\nout\r\nstatus-0\r\n/u);
  });

  test("`guestctl hook` escapes control characters in the hook's output", async () => {
    const script = "printf 'a\\033[31m\\tb\\nc\\n'; printf 'd\\a\\302\\233\\n' >&2";
    await using agent = await startIssuedAgent({ hooks: { pre_snapshot: { args: ["sh", "-c", script] } } });
    const { exitCode, stdout, stderr } = await runGuestctl(["hook", "pre-snapshot"], guestctlVariables(agent));
    assert.deepEqual([exitCode, stdout, stderr], [0, "a?[31m\tb\nc\n", "d??\n"]);
  });

  test("without a configured hook, `guestctl hook` succeeds and says so", async () => {
    await using agent = await startIssuedAgent();
    const { exitCode, stderr } = await runGuestctl(["hook", "post-restore"], guestctlVariables(agent));
    assert.deepEqual([exitCode, stderr], [0, "guestctl: no post-restore hook is configured\n"]);
  });

  test("`guestctl hook` exits with 124 if the hook's timeout has killed it", async () => {
    await using agent = await startIssuedAgent({ hooks: HOOKS, process: { env: { PAUSE: "1000" } } });
    const args = ["hook", "post-restore", "--timeout", "300ms"];
    const { exitCode, stdout, stderr } = await runGuestctl(args, guestctlVariables(agent));
    // Beside a load it may be killed before its first word.
    assert.ok(exitCode === 124 && /^(?:restored\n)?$/.test(stdout), `${exitCode} ${stdout}`);
    assert.match(stderr, /killed at its timeout/);
  });
});

describe("guestctl restore", NEEDS_CREDIT, () => {
  test("`restore --no-time` sends entropy but does not set the clock", async () => {
    await using agent = await startIssuedAgent();
    const { exitCode, stdout } = await runGuestctl(["restore", "--no-time"], guestctlVariables(agent));
    assert.equal(exitCode, 0);
    assert.equal(stdout, "entropy:  64 bytes mixed in, credited\nclock:    left alone\ndegraded: no\n");
  });

  test("`restore` exits with 1 if a restore step failed", async () => {
    await using agent = await startIssuedAgent(WITHOUT_CLOCK);
    const args = ["restore", "--json"];
    const { exitCode, stdout } = await runGuestctl(args, guestctlVariables(agent));
    assert.equal(exitCode, 1);
    const { clock_drift_ms: drift, duration_ms: durationMs, ...rest } = JSON.parse(stdout) as Record<string, unknown>;
    assert.equal(typeof durationMs, "number");
    assert.deepEqual(rest, {
      entropy_bytes_mixed: 64,
      entropy_credited: true,
      clock_stepped: false,
      degraded: "clock_set:EPERM",
      frozen: false,
      thawed_without_duties: false,
    });
    assert.ok(Math.abs(Number(drift)) < 60_000, String(drift));
  });

  test("`restore` fails if the restore steps take longer than `--timeout`", async () => {
    await using agent = await startStandIn({
      service: GuestAgent,
      answers: { Health: () => ({ alive: true }), RunRestoreDuties: () => new Promise(() => {}) },
    });
    const args = ["restore", "--timeout", "300ms", "--address", agent.address, "--credentials", credentials.path];
    assertRefused(await runGuestctl(args, {}), /DEADLINE_EXCEEDED/);
    assert.equal(agent.calls.filter((name) => name === "RunRestoreDuties").length, 1);
  });

  test("`restore` fails if the agent cannot be reached within `--wait`", async () => {
    const path = credentials.at("agent.sock");
    await using refusing = await listener((socket) => socket.destroy(), { path });
    const args = ["restore", "--wait", "1ms", "--address", `unix:${path}`, "--credentials", credentials.path];
    assert.equal((await runGuestctl(args, {})).exitCode, 125);
    // One attempt makes one or two; ten seconds, the default, make more than thirty.
    assert.ok(refusing.sockets.length < 5, `${refusing.sockets.length} connections`);
  });
});

describe("guestctl restore-sequence", NEEDS_CREDIT, () => {
  test("`restore-sequence` runs the restore steps and hook and prints the guest's health", async () => {
    await using agent = await startIssuedAgent({ hooks: HOOKS });
    const { exitCode, stdout } = await runGuestctl(["restore-sequence", "--no-time"], guestctlVariables(agent));
    assert.equal(exitCode, 0);
    const lines = [
      "entropy: +64 bytes mixed in, credited",
      "clock: +left alone",
      "degraded: +no",
      "POST_RESTORE: +exit 0",
      "ready: +yes",
      String.raw`clock now: +the guest's time minus the host's: -?\d+\.\d ms`,
    ];
    assert.match(stdout, new RegExp(`^${lines.join("\n")}\n$`));
    await agent.logged("hook_ended");
    const events = agent.log.map((line) => line.event);
    assert.ok(events.indexOf("restore_duties_done") < events.indexOf("hook_ended"), events.join());
  });

  test("`restore-sequence` repeats the restore steps once if the clock is wrong", async () => {
    const restored = async (errorsMs: readonly number[], ...options: readonly string[]) => {
      await using agent = await startGuestWithClock(errorsMs);
      const args = ["restore-sequence", "--address", agent.address, "--credentials", credentials.path, ...options];
      return await runGuestctl(args, {});
    };
    const put = await restored([-5_000, 0]);
    // Beside a load the clock that was put right is measured badly, too.
    assert.match(put.stderr, /^(?:guestctl: warning: the guest's clock is [^\n]*\n)?$/);
    assert.match(
      put.stdout,
      /once more: +the clock was still off by -\d+\.\d ms \(the guest's time minus the host's\)\nentropy: +64 bytes/,
    );
    assert.match(put.stdout, /clock now: +the guest's time minus the host's: -?\d+\.\d ms\n$/);

    const off = await restored([-5_000], "--json");
    assertRefused(off, /^guestctl: warning: the guest's clock is \d+\.\d ms behind this host's/, 1);
    const { repeated, clock_error_ms: errorMs } = JSON.parse(off.stdout) as Record<string, Record<string, unknown>>;
    assert.ok(Number(repeated?.["clock_error_ms"]) < -100 && Number(errorMs) < -100);
    assert.ok(repeated?.["duties"] !== undefined);
  });

  test("`restore-sequence` exits with 1 and reports in JSON what failed", async () => {
    await using agent = await startIssuedAgent({
      ...WITHOUT_CLOCK,
      hooks: { post_restore: { args: ["sh", "-c", "exit 5"] } },
    });
    const { exitCode, stdout } = await runGuestctl(["restore-sequence", "--json"], guestctlVariables(agent));
    assert.equal(exitCode, 1);
    const { duties, repeated, hook, health } = JSON.parse(stdout) as Record<string, Record<string, unknown>>;
    assert.equal(repeated, null);
    assert.equal(duties?.["degraded"], "clock_set:EPERM");
    assert.equal(hook?.["exit_code"], 5);
    assert.equal(health?.["ready"], true);
  });
});
