import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { describe, it } from "node:test";
import { startAgent } from "../../fixtures/agent.ts";
import { connect, exec, ExecStream, execUntilTimeout } from "../../fixtures/exec-stream.ts";
import { memoryOf, noProcessWith, processGone } from "../../fixtures/proc.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";

const agent = forAllTests(await startAgent({ process: { args: ["sleep", "1000"] } }));

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

describe("exec on pipes", () => {
  it("exec sends `started` first, exit last, and stdout and stderr separately", async () => {
    const line = "cat; echo out; echo err >&2; exit 3";
    const { order, stdout, stderr, exit, pid } = await exec(agent, { args: ["sh", "-c", line] });
    assert.deepEqual([order[0], order.at(-1), String(stdout), String(stderr)], ["started", "exit", "out\n", "err\n"]);
    assert.deepEqual([exit.code, exit.signal, exit.outputComplete], [3, 0, true]);
    assert.ok(pid > 0);
  });

  it("a command killed by signal n exits with code 128 + n", async () => {
    for (const number of [1, 9, 11, 13, 15, 34, 40, 64]) {
      using stream = new ExecStream(agent);
      stream.start({ args: ["sleep", "1000"], stdin: true }).send({ case: "stdinClose", value: {} });
      await stream.next();
      const { exit } = await stream.send({ case: "signal", value: { number } }).outcome();
      assert.deepEqual([exit.code, exit.signal, exit.timedOut], [128 + number, number, false]);
    }
  });
  it("a command's output arrives while its standard input is still open", async () => {
    using stream = new ExecStream(agent);
    stream.start({ args: ["cat"], stdin: true }).stdin("ping\n");
    await stream.until("ping\n");
    stream.stdin("pong\n");
    await stream.until("pong\n");
    assert.equal((await stream.send({ case: "stdinClose", value: {} }).outcome()).exit.code, 0);
  });

  it("the agent ignores input that arrives after the command ended", async () => {
    using stream = new ExecStream(agent);
    stream.start({ args: ["true"], stdin: true });
    for (let i = 0; i < 20; i++) stream.stdin(randomBytes(1000));
    assert.equal((await stream.outcome()).exit.code, 0);
  });

  it("32 MiB pass through cat unchanged in both directions at once", async () => {
    using stream = new ExecStream(agent);
    const chunk = randomBytes(256 * 1024);
    stream.start({ args: ["cat"], stdin: true });
    for (let i = 0; i < 128; i++) stream.stdin(chunk);
    const { stdout } = await stream.end().outcome();
    assert.equal(stdout.length, 128 * chunk.length);
    assert.equal(sha256(stdout), sha256(Buffer.concat(Array.from({ length: 128 }, () => chunk))));
  });

  it("a background child that holds stdout open does not delay the command's exit frame", async () => {
    const { stdout, exit } = await exec(agent, { args: ["sh", "-c", "sleep 300 & echo $!"] });
    const background = Number(String(stdout));
    assert.equal(exit.outputComplete, false);
    assert.ok(Number(exit.durationMs) < 60_000);
    process.kill(background, "SIGKILL"); // Throws unless it lived on.
  });

  it("outputComplete is true once a background child has closed its output", async () => {
    const { stdout, exit } = await exec(agent, {
      // Until it becomes sleep, the shell keeps its redirected output open.
      args: ["sh", "-c", 'sleep 300 >/dev/null 2>&1 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done; echo $!'],
    });
    assert.equal(exit.outputComplete, true);
    process.kill(Number(String(stdout)), "SIGKILL");
  });

  it("an exec continues after the command has closed its output", async () => {
    assert.equal((await exec(agent, { args: ["sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 7"] })).exit.code, 7);
  });

  it("a command run as any user can reopen its output through /dev/stdout", async () => {
    const args = ["sh", "-c", "echo again > /dev/stdout"];
    for (const user of process.getuid?.() === 0 ? ["", "12345:12345"] : [""])
      for (const terminal of [undefined, {}]) {
        const { stdout } = await exec(agent, { args, user, ...(terminal && { terminal }) });
        assert.equal(String(stdout).replace("\r", ""), "again\n", user);
      }
  });

  it("a command has its own session, default signals and inherited open-file limit", async () => {
    execFileSync("prlimit", ["--pid", String(process.pid), "--nofile=1000:"]);
    await using limited = await startAgent();
    const files = ["status", "stat", "limits"].map((name) => `/proc/self/${name}`);
    const { stdout, pid } = await exec(limited, { args: ["cat", ...files] });
    const signals = [...String(stdout).matchAll(/^Sig(?:Blk|Ign|Cgt):\s+(\w+)$/gm)].map(([, mask = ""]) =>
      Number(mask),
    );
    assert.deepEqual(signals, [0, 0, 0]);
    // proc_pid_stat(5): process id, name, state, parent, group, session.
    assert.match(String(stdout), new RegExp(`^${pid} \\(cat\\) \\w \\d+ ${pid} ${pid} `, "m"));
    assert.match(String(stdout), /^Max open files +1000 /m);
  });

  it("arguments reach the command byte for byte, without a shell", async () => {
    const args = ["printf", "%s|", "", "a b", "$HOME", "*", "ünï\n", "'\"\\"];
    assert.equal(String((await exec(agent, { args })).stdout), "|a b|$HOME|*|ünï\n|'\"\\|");
  });

  it("a signal reaches the command's whole process group", async () => {
    using stream = new ExecStream(agent);
    // The leader sets its trap before it starts the child, whose line says that both have set theirs.
    const child = "sh -c 'trap \"echo child; exit\" USR1; echo ready; while :; do sleep 0.05; done' &";
    const line = `trap 'wait; echo caught; exit 5' USR1; ${child} while :; do sleep 0.05; done`;
    await stream.start({ args: ["sh", "-c", line] }).until("ready");
    const { stdout, exit } = await stream.send({ case: "signal", value: { number: 10 } }).outcome();
    assert.equal(String(stdout), "child\ncaught\n");
    assert.equal(exit.code, 5);
  });

  it("a command inherits only descriptors 0, 1 and 2", async () => {
    assert.equal(String((await exec(agent, { args: ["sh", "-c", "ls /proc/$$/fd"] })).stdout), "0\n1\n2\n");
  });

  it("concurrently started commands do not hold each other's output pipes open", async () => {
    const client = connect(agent);
    const worker = async (): Promise<void> => {
      for (let run = 0; run < 25; run++) {
        const stream = new ExecStream(agent, client).start({ args: ["/bin/echo", "x"] }).end();
        assert.equal((await stream.outcome()).exit.outputComplete, true);
      }
    };
    await Promise.all(Array.from({ length: 30 }, worker));
    client.close();
  });
});

/** Of fixed width, so that no other run's mark contains this one: leftovers of another run must not be waited for. */
const RUN = String(process.pid).padStart(7, "0");

describe("an exec with a timeout", () => {
  it("a timed-out command that handles SIGTERM keeps its exit code", async () => {
    const script = "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done";
    const { exit, stdout } = await execUntilTimeout(agent, ["sh", "-c", script]);
    assert.deepEqual([exit.code, exit.signal, exit.timedOut], [4, 0, true]);
    assert.equal(String(stdout), "up\nbye\n");
  });

  it("a timed-out command that ignores SIGTERM is killed with SIGKILL", async () => {
    const { exit } = await execUntilTimeout(agent, ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]);
    assert.deepEqual([exit.code, exit.signal, exit.timedOut], [137, 9, true]);
  });

  it("a timeout also ends a command that SIGSTOP has stopped", async () => {
    const { exit } = await exec(agent, { args: ["sh", "-c", "kill -STOP $$; sleep 1000"], timeoutMs: 1_000n });
    assert.deepEqual([exit.code, exit.signal, exit.timedOut], [143, 15, true]);
  });

  it("a timeout of 2^63 ms is accepted and does not fire early", async () => {
    const { exit } = await exec(agent, { args: ["true"], timeoutMs: 2n ** 63n });
    assert.deepEqual([exit.code, exit.timedOut], [0, false]);
  });
});

describe("an exec whose client disconnects", () => {
  it("cancelling an exec call sends SIGHUP to the command", async () => {
    const stream = new ExecStream(agent);
    stream.start({ args: ["sh", "-c", "echo $$; exec sleep 1000"] });
    const pid = Number(await stream.until("\n"));
    stream.cancel();
    await processGone(pid);
    stream[Symbol.dispose]();
  });

  it("no process remains if the client cancels an exec during its start", async () => {
    for (let i = 0; i < 30; i++) {
      const stream = new ExecStream(agent);
      stream.start({ args: ["sleep", `424242.500${RUN}`] });
      if (i % 2 === 0) await stream.next();
      stream[Symbol.dispose]();
    }
    await noProcessWith(`424242.500${RUN}`);
  });
});

describe("a client that does not read", () => {
  it("unread output pauses its command, takes bounded memory, and arrives later", async () => {
    using stream = new ExecStream(agent);
    stream.start({ args: ["sh", "-c", "head -c 67108864 /dev/zero; echo done >&2"] });
    await stream.next();
    const earlier = memoryOf(agent.pid).ownBytes;
    await exec(agent, { args: ["sleep", "1"] });
    const grownBytes = memoryOf(agent.pid).ownBytes - earlier;
    assert.ok(grownBytes < 32 * 2 ** 20, `grew by ${grownBytes} bytes`);
    const { stdout, stderr } = await stream.outcome();
    assert.equal(stdout.length, 67_108_864);
    assert.equal(String(stderr), "done\n");
  });
});
