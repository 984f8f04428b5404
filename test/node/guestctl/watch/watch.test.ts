import assert from "node:assert/strict";
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Terminal } from "../../../../scripts/machine/terminal.ts";
import { freePort } from "../../../../scripts/machine/free-port.ts";
import { type RunningAgent } from "../../../fixtures/agent.ts";
import { GUESTCTL, guestctlVariables, runGuestctl, startGuestctl, startIssuedAgent } from "../guestctl.ts";

describe("guestctl watch", () => {
  let agent: RunningAgent;
  before(async () => {
    agent = await startIssuedAgent();
  });
  after(() => agent[Symbol.asyncDispose]());

  /** A shell in a terminal, with `watch` typed in and its screen there. */
  async function watching(
    use: (terminal: Terminal) => Promise<void>,
    variables: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    const command = ["bash", "--norc", "--noprofile"] as const;
    const env = { ...guestctlVariables(agent), ...variables };
    await using terminal = new Terminal({ cols: 100, rows: 24, env, command });
    terminal.type(`echo before-$((1)); ${GUESTCTL.join(" ")} watch; echo status-$?\n`);
    await terminal.expect(/^state +up, ready$/m);
    await use(terminal);
  }

  /** The old screen is there again, with a cursor. */
  async function assertGivenBack(terminal: Terminal): Promise<void> {
    await terminal.expect(/^before-1$/m);
    assert.deepEqual([terminal.isAlternate, terminal.isCursorShown], [false, true]);
    terminal.type("echo ech'o'ed\n");
    await terminal.expect(/echo ech'o'ed\nechoed$/m);
  }

  test("shows how the agent is, goes on, and leaves at q with the old screen back", () =>
    watching(async (terminal) => {
      await terminal.expect(/^guestctl watch {2}127\.0\.0\.1:\d+ .* every 1 s {2}\d\d:\d\d:\d\d$/m);
      assert.deepEqual([terminal.isAlternate, terminal.isCursorShown], [true, false]);
      await terminal.expect(/^guest time +\S+Z {2}[+-]0\.\d{3} s to this host$/m);
      await terminal.expect(/^answers +3 of 3, /m);
      await terminal.expect(/^\d\d:\d\d:\d\d {2}up and ready\n\nq leaves$/m);
      terminal.type("q");
      await terminal.expect(/^status-0$/m);
      await assertGivenBack(terminal);
    }));

  test("redraws in place and follows the size", () =>
    watching(async (terminal) => {
      terminal.resize(50, 8);
      await terminal.expect(/^guestctl watch[^]*every 1 s {2}\S+$/m);
      const lines = terminal.screen().split("\n");
      assert.equal(lines[0]?.length, 50);
      assert.ok(lines.filter((line) => line.startsWith("state")).length === 1);
      terminal.resize(120, 30);
      await terminal.expect(/^guestctl watch.{80,}$/m);
      terminal.key("C-c");
      await terminal.expect(/^status-0$/m);
      await assertGivenBack(terminal);
    }));

  test("gives the terminal back when it is suspended, and goes on when it is continued", () =>
    watching(async (terminal) => {
      for (const stops of [/Stopped/, /Stopped[^]*Stopped/]) {
        terminal.key("C-z");
        await terminal.expect(stops);
        await assertGivenBack(terminal);
        terminal.type("fg\n");
        await terminal.expect(/^state +up, ready$/m);
      }
      terminal.type("q");
      await assertGivenBack(terminal);
    }));

  test("gives the terminal back when a signal ends it", () =>
    watching(async (terminal) => {
      const shell = terminal.pid;
      const [pid = ""] = (await readFile(`/proc/${shell}/task/${shell}/children`, "utf8")).trim().split(" ");
      process.kill(Number(pid), "SIGTERM");
      await terminal.expect(/^status-143$/m);
      await assertGivenBack(terminal);
    }));

  test("gives the terminal back when guestctl crashes, and the reason can be read", async (t) => {
    if (process.env["GUESTCTL_ENTRY"] !== undefined) {
      t.skip("the built guestctl takes no code to crash it");
      return;
    }
    const crash = "process.on('SIGWINCH',()=>{throw(new(Error)('crash'))})";
    const variables = { NODE_OPTIONS: `--import=data:text/javascript,${crash}` };
    await watching(async (terminal) => {
      terminal.resize(90, 20);
      await terminal.expect(/^Error: crash$[^]*^status-\d+$/m);
      await assertGivenBack(terminal);
    }, variables);
  });

  test("shows a lost agent, and dials anew until another is there", async () => {
    const port = await freePort();
    const options = { env: { SVC_GUEST_PORT: String(port) } };
    const first = await startIssuedAgent(options);
    try {
      const env = { ...guestctlVariables(first), GUESTCTL_ADDRESS: `127.0.0.1:${port}` };
      const command = [...GUESTCTL, "watch", "--interval", "200ms"] as const;
      await using terminal = new Terminal({ cols: 100, rows: 24, env, command });
      await terminal.expect(/^state +up, ready$/m);
      first.kill("SIGKILL");
      await terminal.expect(/^state +lost for \d+\.\d s, trying again\n +.*\[UNAVAILABLE\]$/m);
      const { certificates } = first;
      await using _second = await startIssuedAgent({ ...options, certificates });
      await terminal.expect(/^state +up, ready$/m);
      await terminal.expect(/ {2}back after \d+\.\d s\n.* {2}lost: .*\n.* {2}up and ready$/m);
    } finally {
      await first[Symbol.asyncDispose]();
    }
  });

  test("writes a line of JSON for each look where there is no terminal", async () => {
    const { stdout, exitCode } = await runGuestctl(
      ["watch", "--interval", "100ms", "--count", "3"],
      guestctlVariables(agent),
    );
    assert.equal(exitCode, 0);
    const lines = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    assert.equal(lines.length, 3);
    for (const line of lines) {
      assert.deepEqual(Object.keys(line), [
        "time",
        "state",
        "round_trip_ms",
        "clock_error_ms",
        "agent_version",
        "health",
      ]);
      assert.equal(line["state"], "up");
      assert.equal(typeof line["round_trip_ms"], "number");
      assert.ok(Math.abs(Number(line["clock_error_ms"])) < 1_000);
      assert.equal((line["health"] as Record<string, unknown>)["ready"], true);
    }
  });

  test("leaves with what the last look said", async () => {
    const env = guestctlVariables(agent);
    await using unready = await startIssuedAgent({
      process: { args: ["sleep", "1000"], ready_cmd: { args: ["false"] } },
    });
    assert.equal((await runGuestctl(["watch", "--count", "1"], guestctlVariables(unready))).exitCode, 1);
    const nobody = { ...env, GUESTCTL_ADDRESS: `127.0.0.1:${await freePort()}` };
    const lost = await runGuestctl(["watch", "--count", "1"], nobody);
    assert.equal(lost.exitCode, 125);
    const { state, error } = JSON.parse(lost.stdout) as { state: string; error: Record<string, unknown> };
    assert.deepEqual([state, error["status"]], ["lost", "UNAVAILABLE"]);
  });

  test("gives up at once where no waiting helps", async () => {
    const folder = await mkdtemp(join(tmpdir(), "guestctl-watch-"));
    try {
      for (const name of ["ca.pem", "client.pem", "client.key"]) {
        await copyFile(join(agent.credentialsDir, name), join(folder, name));
      }
      await writeFile(join(folder, "token"), "that-of-another-sandbox");
      const env = { ...guestctlVariables(agent), GUESTCTL_CREDENTIALS: folder };
      const { stdout, stderr, exitCode } = await runGuestctl(["watch"], env);
      assert.deepEqual([stdout, exitCode], ["", 125]);
      assert.match(stderr, /\[UNAUTHENTICATED.*\]; the token of --credentials is not that of this agent\n$/);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test("refuses to be a burden", async () => {
    const { stderr, exitCode } = await runGuestctl(["watch", "--interval", "1ms"], guestctlVariables(agent));
    assert.equal(stderr, "guestctl: --interval wants 100ms at least (see --help)\n");
    assert.equal(exitCode, 125);
    // Node's timers take no longer time than 24 days: it would look a thousand times a second.
    const rare = await runGuestctl(["watch", "--interval", "1000h"], guestctlVariables(agent));
    assert.equal(rare.stderr, "guestctl: --interval wants 24h at most (see --help)\n");
  });

  test("goes on after the duties of a restore, which end its connection", async () => {
    const guestctl = startGuestctl(["watch", "--interval", "100ms"], guestctlVariables(agent));
    /** State of the first look from then on that has not been read yet. */
    const state = async (fromMs: number): Promise<string> => {
      for (;;) {
        const { value } = (await guestctl.lines.next()) as { value: string };
        const { time, state: found } = JSON.parse(value) as { time: string; state: string };
        if (Date.parse(time) >= fromMs) return found;
      }
    };
    assert.equal(await state(0), "up");
    const { stdout } = await runGuestctl(["restore", "--no-time", "--json"], guestctlVariables(agent));
    assert.equal((JSON.parse(stdout) as Record<string, unknown>)["entropy_bytes_mixed"], 64);
    // One look may fall into the moment of the change.
    const doneMs = Date.now();
    const states = [await state(doneMs), await state(doneMs), await state(doneMs), await state(doneMs)];
    assert.ok(states.filter((each) => each === "up").length >= 3, states.join());
    guestctl.kill("SIGTERM");
    await guestctl.ended;
  });

  test("is no user activity", async () => {
    const guestctl = startGuestctl(["watch", "--interval", "100ms"], guestctlVariables(agent));
    const activity = async (): Promise<unknown> => {
      const { value } = (await guestctl.lines.next()) as { value: string };
      return (JSON.parse(value) as { health: Record<string, unknown> }).health["last_user_activity"];
    };
    const first = await activity();
    assert.equal(await activity(), first);
    assert.equal(await activity(), first);
    guestctl.kill("SIGTERM");
    await guestctl.ended;
  });
});
