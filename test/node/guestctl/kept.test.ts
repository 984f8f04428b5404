import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Terminal } from "../../../scripts/machine/terminal.ts";
import { until } from "../../fixtures/awake.ts";
import { lacksCgroups, NEEDS_NAMESPACES, withoutCgroups } from "../../fixtures/namespaces.ts";
import { processGone } from "../../fixtures/proc.ts";
import { relayTo } from "../../fixtures/relay.ts";
import {
  agentForAllTests,
  assertRefused,
  GUESTCTL_LINE,
  type GuestctlResult,
  guestctlVariables,
  jsonLines,
  runGuestctl,
  startGuestctl,
  startIssuedAgent,
} from "./guestctl.ts";

const { agent, env } = await agentForAllTests();

describe("guestctl and kept commands", () => {
  const guestctl = (args: readonly string[], input?: string): Promise<GuestctlResult> => runGuestctl(args, env, input);
  const listed = async (): Promise<readonly Record<string, unknown>[]> =>
    jsonLines((await guestctl(["execs", "--json"])).stdout);

  test("`exec -d`, `execs` and `attach` start, list and finish a kept command", async () => {
    const script = "echo first; read line; echo got $line; exit 6";
    const started = await guestctl(["exec", "--name", "build", "-d", "-i", "--", "sh", "-c", script]);
    assert.deepEqual([started.stderr, started.exitCode], ["", 0]);
    assert.equal(started.stdout, "build\n");
    assert.equal((await guestctl(["execs", "--quiet"])).stdout, "build\n");
    const { stdout } = await guestctl(["execs"]);
    assert.match(stdout, /^NAME +PID +STATE +STARTED .*\nbuild +\d+ +running +\S+Z +6 +0 +6 +[0-9a-f]{32}\n$/);
    const attached = await guestctl(["attach", "-i", "build"], "a line\n");
    assert.deepEqual([attached.stdout, attached.stderr, attached.exitCode], ["first\ngot a line\n", "", 6]);
    assert.deepEqual(await listed(), []);
  });

  test("`guestctl end` signals a running kept command and forgets an ended one", async () => {
    await guestctl(["exec", "--name", "server", "-d", "sleep", "1000"]);
    assert.equal((await guestctl(["end", "--signal", "int", "server"])).stdout, "ended: code 130, signal 2\n");
    assert.deepEqual(await listed(), []);
    const runToEnd = async (): Promise<void> => {
      await guestctl(["exec", "--name", "server", "-d", "sh", "-c", "exit 7"]);
      await until(async () => (await listed())[0]?.["exit"] !== undefined, "the command has ended");
      assert.match(JSON.stringify((await listed())[0]?.["exit"]), /^{"exit_code":7,"signal":0,.*"duration_ms":\d/);
    };
    await runToEnd();
    assertRefused(await guestctl(["exec", "--name", "server", "true"]), /\[ALREADY_EXISTS, EXEC_NAME_IN_USE\]/);
    assert.match(
      (await guestctl(["end", "--json", "server"])).stdout,
      /"forgotten":true,.*"exit":{"exit_code":7,"signal":0,/,
    );
    await runToEnd();
    assert.equal((await guestctl(["exec", "--name", "server", "--replace", "true"])).exitCode, 0);
    assert.deepEqual(await listed(), []);
    const unknown = await guestctl(["end", "server"]);
    assertRefused(unknown, /^guestctl: there is no kept command "server".*\[NOT_FOUND, EXEC_UNKNOWN\]/);
    assert.match((await guestctl(["attach", "server"])).stderr, /there is no kept command "server"; there are none/);
    for (const args of [
      ["end", "--signal", "SIGNONE", "a"],
      ["kill", "a", "none"],
    ])
      assert.match((await guestctl(args)).stderr, /"SIGNONE" is not a signal/);
  });

  test("`guestctl end` ends and counts the processes that a command left running", async (t) => {
    if (lacksCgroups(t, agent)) return;
    const leave = async (): Promise<number> => {
      await guestctl(["exec", "--name", "leaver", "-d", "sh", "-c", "setsid sleep 1000 & echo $!"]);
      await until(async () => (await listed())[0]?.["exit"] !== undefined, "the command has ended");
      const shown = JSON.parse((await guestctl(["ps", "--json", "leaver"])).stdout) as { pid: number };
      return shown.pid;
    };
    const first = await leave();
    const { stdout, stderr } = await guestctl(["end", "leaver"]);
    assert.equal(stdout, "ended: code 0, signal 0; ended 1 process that it had left running\n");
    assert.equal(stderr, "");
    await processGone(first);
    const second = await leave();
    const { leftovers_ended } = JSON.parse((await guestctl(["end", "--json", "leaver"])).stdout) as Record<
      string,
      unknown
    >;
    assert.equal(leftovers_ended, 1);
    await processGone(second);
  });

  test("without cgroups, `guestctl end` warns that processes may continue", NEEDS_NAMESPACES, async () => {
    await using bare = await startIssuedAgent({ through: withoutCgroups() });
    const other = (args: readonly string[]): Promise<GuestctlResult> => runGuestctl(args, guestctlVariables(bare));
    await other(["exec", "--name", "leaver", "-d", "true"]);
    await until(async () => (await other(["execs", "--json"])).stdout.includes('"exit"'), "the command has ended");
    const { stdout, stderr, exitCode } = await other(["end", "leaver"]);
    assert.deepEqual([stdout, exitCode], ["ended: code 0, signal 0\n", 0]);
    assert.match(stderr, /^guestctl: warning: processes that leaver left running may continue: .* no cgroups, .*\n$/);
  });

  test("`exec` of a kept command exits with 125 when another client attaches to it", async () => {
    const first = startGuestctl(["exec", "--name", "shared", "--json", "sh", "-c", "echo up; exec sleep 1000"], env);
    const events = first.lines;
    const started = JSON.parse(String((await events.next()).value)) as Record<string, unknown>;
    assert.equal(started["event"], "started");
    const second = startGuestctl(["attach", "shared"], env);
    assert.equal((await second.lines.next()).value, "up");
    assert.equal(await first.ended, 125);
    const ended = JSON.parse((await guestctl(["end", "--json", "shared"])).stdout) as Record<string, unknown>;
    assert.equal(ended["forgotten"], true);
    assert.equal(await second.ended, 128 + 15);
  });

  test("`exec -it --name` survives a lost connection, and its command redraws the screen", async () => {
    await using proxy = await relayTo(agent.port);
    const through = { ...env, PS1: "", GUESTCTL_ADDRESS: `127.0.0.1:${proxy.port}` };
    await using terminal = new Terminal({ command: ["sh"], cols: 97, rows: 31, env: through });
    const draw = `trap 'echo drawn-$(stty size | tr " " x)' WINCH; while :; do read key && echo typed-$key; done`;
    terminal.type(`${GUESTCTL_LINE} exec -it --name screen -- sh -c '${draw.replaceAll("'", String.raw`'\''`)}'\n`);
    terminal.type("one\n");
    await terminal.read(/typed-one/);
    proxy.cut();
    await terminal.read(/guestctl: lost the connection to screen: [^\r\n]*; reconnecting\r\n/);
    terminal.type("two\n");
    proxy.mend();
    await terminal.read(/guestctl: reconnected after \d+\.\d s\r\n/);
    await terminal.read(/drawn-31x97/);
    terminal.type("three\n");
    await terminal.read(/typed-three/);
    terminal.type("\n~.");
    await terminal.read(/disconnected by the escape key; the command continues: guestctl attach screen/);
    const [screen] = await listed();
    assert.deepEqual([screen?.["name"], screen?.["exit"]], ["screen", undefined]);

    terminal.type(`${GUESTCTL_LINE} attach screen\n`);
    await terminal.read(/drawn-31x97/);
    terminal.type("four\n");
    await terminal.read(/typed-four/);
    await guestctl(["end", "screen"]);
  });

  test("`--attach-or-start` attaches to a running command and otherwise starts it", async () => {
    const run = (script: string): Promise<GuestctlResult> =>
      guestctl(["exec", "--name", "one", "-A", "sh", "-c", script]);
    assert.equal((await run("echo new")).stdout, "new\n");
    await guestctl(["exec", "--name", "one", "-d", "-i", "sh", "-c", "echo old; read line; echo $line; exit 3"]);
    const taken = await guestctl(["exec", "--name", "one", "-A", "-i", "true"], "a line\n");
    assert.deepEqual([taken.stdout, taken.exitCode], ["old\na line\n", 3]);
    await guestctl(["exec", "--name", "one", "-d", "sh", "-c", "exit 4"]);
    await until(async () => (await listed())[0]?.["exit"] !== undefined, "the command has ended");
    assert.equal((await run("echo anew")).stdout, "anew\n");
  });

  test("`kill` sends signals by name or number to a kept command", async () => {
    // Not bash: version 5.2 can send itself SIGINT without end if SIGINT arrives while it waits for a child.
    const script = 'for s in HUP INT USR1 TERM; do trap "echo $s" $s; done; echo up; while :; do sleep 0.05; done';
    const running = startGuestctl(["exec", "--name", "target", "sh", "-c", script], env);
    assert.equal((await running.lines.next()).value, "up");
    for (const [args, signal] of [
      [["target", "HUP"], "HUP"],
      [["target", "sigint"], "INT"],
      [["-s", "10", "target"], "USR1"],
      [["-USR1", "target"], "USR1"],
      [["target"], "TERM"],
    ] as const) {
      assert.deepEqual(await guestctl(["kill", ...args]), { stdout: "", stderr: "", exitCode: 0 });
      // Some shells also report the child that the signal has ended.
      let line: unknown;
      do ({ value: line } = (await running.lines.next()) as { value: unknown });
      while (line !== signal && line !== undefined);
      assert.equal(line, signal);
    }
    await guestctl(["kill", "-9", "target"]);
    assert.equal(await running.ended, 128 + 9);
    await guestctl(["exec", "--name", "target", "-d", "true"]);
    await until(async () => (await listed())[0]?.["exit"] !== undefined, "the command has ended");
    assert.match((await guestctl(["kill", "target"])).stderr, /target has ended.*\[FAILED_PRECONDITION, EXEC_ENDED\]/);
    await guestctl(["end", "target"]);
  });
});
