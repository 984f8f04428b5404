import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { exec, ExecStream } from "../../fixtures/exec-stream.ts";

const agent = forAllTests(await startAgent());

describe("exec in a terminal", () => {
  it("a terminal has the requested size and is the command's controlling terminal", async () => {
    const line = "stty size; tty; test -t 0 && test -t 1 && test -t 2 && echo yes > /dev/tty";
    const { stdout, order } = await exec(agent, { args: ["sh", "-c", line], terminal: { cols: 123, rows: 45 } });
    assert.match(String(stdout), /^45 123\r\n\/dev\/pts\/\d+\r\nyes\r\n$/);
    assert.deepEqual(order, ["started", "stdout", "exit"]);
  });

  it("a terminal has 80 columns and 24 rows by default", async () => {
    assert.equal(String((await exec(agent, { args: ["stty", "size"], terminal: {} })).stdout), "24 80\r\n");
  });

  it("a terminal resize sends SIGWINCH, but a size with a zero is ignored", async () => {
    using stream = new ExecStream(agent);
    const line = "trap 'stty size; exit' WINCH; echo ready; read line; stty size; while :; do sleep 0.05; done";
    await stream.start({ args: ["bash", "-c", line], terminal: { cols: 90, rows: 33 } }).until("ready\r\n");
    for (const [cols, rows] of [
      [0, 0],
      [0, 24],
      [80, 0],
    ] as const)
      stream.send({ case: "resize", value: { cols, rows } });
    await stream.stdin("\r").until("33 90\r\n");
    stream.send({ case: "resize", value: { cols: 100, rows: 50 } });
    assert.equal(String((await stream.outcome()).stdout), "50 100\r\n");
  });

  it("`stdin_close` ends a terminal's input, even in the middle of a line", async () => {
    for (const input of ["line\n", "no newline", ""]) {
      using stream = new ExecStream(agent);
      stream.start({ args: ["sh", "-c", "stty -echo; echo ready; cat; echo done"], terminal: {} });
      await stream.until("ready\r\n");
      const { stdout, exit } = await stream.stdin(input).send({ case: "stdinClose", value: {} }).outcome();
      assert.deepEqual([String(stdout).replaceAll("\r", ""), exit.code], [`${input}done\n`, 0]);
    }
  });

  it("Ctrl-C typed into a terminal becomes SIGINT", async () => {
    using stream = new ExecStream(agent);
    stream.start({ args: ["sh", "-c", "echo ready; exec sleep 1000"], terminal: {} });
    await stream.until("ready");
    assert.equal((await stream.stdin("\x03").outcome()).exit.signal, 2);
  });

  it("a terminal has the iutf8 flag only if the client set it", async () => {
    for (const iutf8 of [true, false]) {
      const { stdout } = await exec(agent, { args: ["stty", "-a"], terminal: { iutf8 } });
      assert.equal(/(?<!-)\biutf8\b/.test(String(stdout)), iutf8);
    }
  });

  it("SIGINT, SIGQUIT and SIGTSTP reach the foreground job of a shell", async () => {
    using stream = new ExecStream(agent);
    stream.start({ args: ["bash", "--norc", "-i"], env: { PS1: "prompt$ " }, terminal: {} });
    await stream.until("prompt$ ");
    const job =
      'sh -c \'trap "echo got 2; exit" INT; trap "echo got 3; exit" QUIT; echo read"y"; while :; do sleep 0.05; done\'\r';
    for (const number of [2, 3]) {
      await stream.stdin(job).until("ready\r\n");
      await stream.send({ case: "signal", value: { number } }).until(`got ${number}\r\n`);
    }
    await stream.stdin("sh -c 'echo read\"y\"; exec sleep 1000'\r").until("ready\r\n");
    await stream.send({ case: "signal", value: { number: 20 } }).until("Stopped");
    // The others still go to the command's own group: this one ends the shell. (bash 5.2 would miss a SIGHUP that comes
    // just before it waits for a key, until the next key.)
    const { exit } = await stream.send({ case: "signal", value: { number: 9 } }).outcome();
    assert.equal(exit.signal, 9);
  });

  it("a client receives all 4 MiB that a command wrote to its terminal before exiting", async () => {
    const { stdout, exit } = await exec(agent, {
      args: ["sh", "-c", "stty -opost; head -c 4194304 /dev/zero"],
      terminal: {},
    });
    assert.equal(stdout.length, 4_194_304);
    assert.equal(exit.outputComplete, true);
  });

  it("a terminal command inherits only descriptors 0, 1 and 2", async () => {
    using other = new ExecStream(agent);
    other.start({ args: ["sh", "-c", "echo ready; exec sleep 1000"], terminal: {} });
    await other.until("ready");
    const { stdout } = await exec(agent, { args: ["sh", "-c", "ls /proc/$$/fd"], terminal: {} });
    assert.deepEqual(String(stdout).trim().split(/\s+/), ["0", "1", "2"]);
  });
});
