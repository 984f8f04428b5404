import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, test } from "node:test";
import { execa } from "execa";
import { testDirectory } from "../../fixtures/files.ts";
import { processGone } from "../../fixtures/proc.ts";
import {
  agentForAllTests,
  assertRefused,
  GUESTCTL_LINE,
  type GuestctlResult,
  jsonLines,
  runGuestctl,
  startGuestctl,
} from "./guestctl.ts";

const { env } = await agentForAllTests();

describe("guestctl exec", () => {
  const exec = (args: readonly string[], input?: string): Promise<GuestctlResult> =>
    runGuestctl(["exec", ...args], env, input);

  test("`exec` passes through output and exit status", async () => {
    const { stdout, stderr, exitCode } = await exec(["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert.deepEqual({ stdout, stderr, exitCode }, { stdout: "out\n", stderr: "err\n", exitCode: 7 });
  });

  test("`exec` exits with 128 + N if signal N ended the command", async () => {
    assert.equal((await exec(["sh", "-c", "kill -SEGV $$"])).exitCode, 128 + 11);
  });

  test("`exec` exits with 127, 126 or 125 if the command cannot start", async () => {
    const missing = await exec(["/no/such/command"]);
    assertRefused(missing, /^guestctl: .*\/no\/such\/command.*\[NOT_FOUND, EXEC_NOT_FOUND\]\n$/, 127);
    assertRefused(await exec(["/etc"]), /EXEC_PERMISSION_DENIED/, 126);
    assertRefused(await exec(["-u", "nobody-here", "true"]), /nobody-here.*EXEC_BAD_USER/);
  });

  test("`exec` exits with 124 when `--timeout` expires", async () => {
    const result = await exec(["--timeout", "300ms", "sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]);
    assertRefused(result, /^guestctl: timed out after 300ms\n$/, 124);
  });

  test("`exec -e` sets or copies a variable, and `-w` sets the working directory", async () => {
    env["FROM_HOST"] = "host value";
    const command = ["-e", "A=1=2", "-e", "FROM_HOST", "-w", "/tmp", "sh", "-c"];
    const { stdout } = await exec([...command, 'echo "$A|$FROM_HOST|$(pwd)"']);
    assert.equal(stdout, "1=2|host value|/tmp\n");
    assertRefused(
      await exec(["-e", "NOT_SET", "true"]),
      /--env NOT_SET: guestctl's own environment has no such variable/,
    );
  });

  test("`exec` passes variables named like properties of Object.prototype", async () => {
    const { stdout } = await exec(["-e", "__proto__=x", "-e", "toString=y", "env"]);
    const lines = stdout.split("\n");
    for (const line of ["__proto__=x", "toString=y"]) assert.ok(lines.includes(line), line);
    // It is not set here, though every object has such a property.
    assertRefused(await exec(["-e", "constructor", "env"]), /--env constructor: /);
  });

  test("`exec` exits with the command's status even if standard input never ends", async () => {
    const line = `for i in 1 2 3 4 5; do yes | ${GUESTCTL_LINE} exec -i -- sh -c "sleep 0.2; exit 4"; printf "$? "; done`;
    const { stdout, stderr } = await execa("sh", ["-c", line], { env, extendEnv: false });
    assert.equal(stdout, "4 4 4 4 4 ", stderr);
  });

  test("`exec` treats unreadable standard input as empty", async () => {
    for (const option of ["", "--json", "--name unreadable"]) {
      const line = `${GUESTCTL_LINE} exec -i ${option} -- sh -c 'cat; sleep 0.2; exit 6' 0>/dev/null`;
      const { stderr, exitCode } = await execa("sh", ["-c", line], { env, extendEnv: false, reject: false });
      assert.deepEqual([exitCode, stderr], [6, ""], option);
    }
  });

  test("`exec` rejects a directory as standard input before anything runs", async () => {
    for (const command of ["exec -i -- true", "rsh any true", "connect 1", "write /tmp/never"]) {
      const line = `${GUESTCTL_LINE} ${command} </tmp`;
      const { stderr } = await execa("sh", ["-c", line], { env, extendEnv: false, reject: false });
      assert.match(stderr, /^guestctl: cannot read standard input: it is a directory; give a file or a pipe$/, command);
    }
  });

  test("if SIGINT ends the command, `exec` also terminates itself by SIGINT", async () => {
    for (const option of ["", "--json"]) {
      const command = `${GUESTCTL_LINE} exec ${option} -- sh -c 'echo up; exec sleep 1000'`;
      const shell = spawn("bash", ["-c", `for i in 1 2 3; do ${command}; done`], { env, detached: true });
      const ended = once(shell, "exit");
      for (let output = ""; !/up|stdout/.test(output);) output += String((await once(shell.stdout, "data"))[0]);
      process.kill(-(shell.pid ?? assert.fail()), "SIGINT");
      assert.deepEqual(await ended, [null, "SIGINT"]);
    }
  });

  test("a signal that ends guestctl leaves its stdout pipe in blocking mode", async () => {
    const writers = `${GUESTCTL_LINE} health --watch & read _ <go; kill -TERM $!; wait $!; grep flags /proc/self/fdinfo/1`;
    const reader = "dd bs=1 count=1 of=/dev/null 2>/dev/null; echo >go; grep flags";
    const line = `mkfifo go && { ${writers}; } | { ${reader}; }`;
    await using directory = await testDirectory();
    const { stdout } = await execa("sh", ["-c", line], { env, extendEnv: false, cwd: directory.path });
    // O_WRONLY, and not O_NONBLOCK (04000).
    assert.match(stdout, /^flags:\s*01$/);
  });

  test("`exec` rejects arguments and variables that are not UTF-8", async () => {
    const refused: readonly (readonly [line: string, said: RegExp])[] = [
      ["exec -- echo 'ab\\377c'", /argument 3 after the command name is not valid UTF-8 at byte 2/],
      ["exec -e 'A=\\377' -- true", /argument 2 after the command name is not valid UTF-8 at byte 2/],
      ["exec -e WRONG -- true", /the variable WRONG is not valid UTF-8 at byte 1/],
      ["end 'a\\377'", /argument 1 after the command name is not valid UTF-8 at byte 1/],
    ];
    for (const [line, said] of refused) {
      const script = `export WRONG="$(printf 'x\\377')"; eval "$(printf '%b' "$0")"`;
      const command = `${GUESTCTL_LINE} ${line}`;
      const { stderr, exitCode } = await execa("sh", ["-c", script, command], { env, extendEnv: false, reject: false });
      assertRefused({ stdout: "", stderr, exitCode }, said);
    }
    // What is UTF-8 passes, the replacement character itself too.
    assert.equal((await exec(["--", "printf", "%s", "\ufffd ä"])).stdout, "\ufffd ä");
  });

  test("`exec` connects standard input only with `-i`", async () => {
    assert.equal((await exec(["-i", "cat"], "some input")).stdout, "some input");
    assert.equal((await exec(["cat"], "some input")).stdout, "");
  });

  test("`exec` exits when its command ends, although standard input is still open", async () => {
    const guestctl = startGuestctl(["exec", "-i", "true"], env, "pipe");
    assert.equal(await guestctl.ended, 0);
  });

  test("`exec` loses no output if its reader is slow", async () => {
    const sizeBytes = 20 * 1024 * 1024;
    const guestctl = startGuestctl(["exec", "head", "-c", String(sizeBytes), "/dev/zero"], env);
    let received = 0;
    for await (const chunk of guestctl.stdout as AsyncIterable<Buffer>) {
      received += chunk.length;
      await new Promise(setImmediate);
    }
    assert.equal(received, sizeBytes);
    assert.equal(await guestctl.ended, 0);
  });

  test("`exec` ends the command and exits with 141 when exec's output is closed", async () => {
    const guestctl = startGuestctl(["exec", "sh", "-c", "echo $$; exec yes"], env);
    const [first] = (await once(guestctl.stdout, "data")) as [Buffer];
    guestctl.stdout.destroy();
    assert.equal(await guestctl.ended, 141);
    await processGone(Number.parseInt(String(first), 10));
  });

  test("`exec` forwards signals to the command", async () => {
    const script = "trap 'echo got INT' INT; trap 'echo got TERM; exit 3' TERM; echo up; while :; do sleep 0.05; done";
    const guestctl = startGuestctl(["exec", "sh", "-c", script], env);
    const seen = guestctl.lines;
    assert.equal((await seen.next()).value, "up");
    guestctl.kill("SIGINT");
    assert.equal((await seen.next()).value, "got INT");
    guestctl.kill("SIGTERM");
    assert.equal((await seen.next()).value, "got TERM");
    assert.equal(await guestctl.ended, 3);
  });

  test("a third SIGINT ends `exec` and sends SIGHUP to the command", async () => {
    const script = "trap 'echo no' INT; echo $$; while :; do sleep 0.05; done";
    const guestctl = startGuestctl(["exec", "sh", "-c", script], env);
    const seen = guestctl.lines;
    const pid = Number((await seen.next()).value);
    for (const _attempt of [1, 2]) {
      guestctl.kill("SIGINT");
      assert.equal((await seen.next()).value, "no");
    }
    guestctl.kill("SIGINT");
    assert.equal(await guestctl.ended, undefined, "it ends by SIGINT");
    await processGone(pid);
  });

  test("SIGHUP ends `exec` with 129 and sends SIGHUP to the command", async () => {
    // Its own status would tell that guestctl had passed the signal on and waited.
    const script = "trap 'exit 5' HUP; echo $$; while :; do sleep 0.05; done";
    const guestctl = startGuestctl(["exec", "sh", "-c", script], env);
    const pid = Number((await guestctl.lines.next()).value);
    guestctl.kill("SIGHUP");
    assert.equal(await guestctl.ended, 129);
    await processGone(pid);
  });

  test("`exec --json` prints one line per event", async () => {
    const { stdout, exitCode } = await exec(["--json", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert.equal(exitCode, 3);
    const events = jsonLines(stdout);
    const output = (name: string): string =>
      events
        .filter((event) => event["event"] === name)
        .map((event) => Buffer.from(String(event["data"]), "base64").toString())
        .join("");
    assert.equal(events[0]?.["event"], "started");
    assert.equal(output("stdout"), "out\n");
    assert.equal(output("stderr"), "err\n");
    const exit = events.at(-1);
    assert.deepEqual([exit?.["event"], exit?.["exit_code"], exit?.["output_complete"]], ["exit", 3, true]);
    assert.match(JSON.stringify(exit?.["usage"]), /^{"cpu_scope":"USAGE_SCOPE_(?:TREE|PROCESS)".*"cpu_user_us":"\d+"/);
  });

  test("`exec --json` prints its error as JSON", async () => {
    const { stdout, stderr, exitCode } = await exec(["--json", "/no/such/command"]);
    assert.deepEqual([stdout, exitCode], ["", 127]);
    const { error } = JSON.parse(stderr) as { error: Record<string, unknown> };
    assert.deepEqual([error["status"], error["reason"]], ["NOT_FOUND", "EXEC_NOT_FOUND"]);
  });

  test("`exec -it` fails without a local terminal; `-itt` gives the command one anyway", async () => {
    const refused = await exec(["-it", "sh"], "exit 4\n");
    assertRefused(refused, /^guestctl: standard input is not a terminal; omit -t, or .* -itt \(see --help\)\n$/);
    const { stdout, exitCode } = await exec(["-itt", "sh"], "tty && stty size\nexit 4\n");
    assert.equal(exitCode, 4);
    assert.match(stdout, /\/dev\/pts\/\d+\r\n24 80\r\n/);
  });
});
