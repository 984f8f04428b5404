import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { execa } from "execa";
import { Terminal } from "../../../../scripts/machine/terminal.ts";
import { CommandError, type StdioOption } from "../../../../src/node/client/index.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { clientOf, failureOf, optionsFor, thrownBy } from "../../../fixtures/guest-client.ts";
import { processGone } from "../../../fixtures/proc.ts";

const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

describe("callbacks and check of a started command", () => {
  test("the output callbacks of start() receive all output before wait() resolves", async () => {
    const pieces = { out: "", err: "" };
    const slow = async (piece: string): Promise<void> => {
      await pause(1);
      pieces.out += piece;
    };
    const script = String.raw`printf 'a\303'; sleep 0.1; printf '\244b'; echo err >&2; exit 3`;
    const started = client.start(["sh", "-c", script], { onStdout: slow, onStderr: (piece) => (pieces.err += piece) });
    assert.equal((await started.wait()).exitCode, 3);
    assert.deepEqual(pieces, { out: "aäb", err: "err\n" });
  });

  test("the output callbacks of attach() receive all output before wait() resolves", async () => {
    const keep = { name: "called" } as const;
    await client.start(["sh", "-c", "printf ä; echo err >&2; read line; echo $line"], { keep, stdin: true }).detach();
    const pieces = { out: "", err: "" };
    const attached = client.commands.attach("called", {
      onStdout: (piece) => (pieces.out += piece),
      onStderr: (piece) => (pieces.err += piece),
    });
    attached.stdin.end("more\n");
    assert.equal((await attached.wait()).exitCode, 0);
    assert.deepEqual(pieces, { out: "ämore\n", err: "err\n" });
  });

  test('callbacks of start() receive bytes with encoding: "buffer"', async () => {
    const bytes: Buffer[] = [];
    const started = client.start(["printf", "ä"], { encoding: "buffer", onStdout: (piece) => bytes.push(piece) });
    await started.wait();
    assert.deepEqual(Buffer.concat(bytes), Buffer.from("ä"));
  });

  test("onStderr receives standard error while the caller reads stdout itself", async () => {
    let errors = "";
    const script = "echo one; echo bad >&2; echo two";
    const started = client.start(["sh", "-c", script], { onStderr: (piece) => (errors += piece), encoding: "utf8" });
    assert.deepEqual(await Array.fromAsync(started.lines()), ["one", "two"]);
    await started.wait();
    assert.equal(errors, "bad\n");
  });

  test("an error thrown by an output callback of start() ends the command and rejects wait()", async () => {
    const own = new RangeError("the caller's own");
    for (const keep of [undefined, { name: randomUUID() }]) {
      const onStdout = (): never => {
        throw own;
      };
      const command = ["sh", "-c", "echo one; exec sleep 1000"];
      const started =
        keep === undefined ? client.start(command, { onStdout }) : client.start(command, { onStdout, keep });
      const pid = await started.started;
      await assert.rejects(started.wait(), (error) => error === own);
      await processGone(pid);
    }
  });

  test("wait() rejects with an error that onStdout throws after the command's exit", async () => {
    const own = new RangeError("late");
    const onStdout = async (): Promise<never> => {
      await started.started;
      await pause(50);
      throw own;
    };
    const started = client.start(["echo", "one"], { onStdout });
    await assert.rejects(started.wait(), (error) => error === own);
  });

  test("with `check`, wait() rejects with the exit code and stderr's last lines", async () => {
    const script = "seq 1 5000 >&2; echo out; exit 3";
    for (const keep of [undefined, { name: randomUUID() }]) {
      const command = ["sh", "-c", script];
      const started =
        keep === undefined ? client.start(command, { check: true }) : client.start(command, { check: true, keep });
      started.stderr.resume();
      assert.deepEqual(await Array.fromAsync(started.lines()), ["out"]);
      const error = await failureOf(started.wait());
      assert.ok(error instanceof CommandError);
      assert.deepEqual([error.exitCode, error.stdout], [3, ""]);
      assert.match(error.message, /^sh failed with exit code 3: \d+\n[^]*\n4999\n5000$/);
      assert.ok(error.stderr.length <= 8_192, String(error.stderr.length));
    }
    const fine = client.start(["true"], { check: true });
    assert.equal((await fine.wait()).exitCode, 0);
  });
});

describe("stdio of a command", () => {
  /** Runs a program that uses the library, with the agent's options as `options`. */
  const program = (code: string): readonly string[] => {
    const index = JSON.stringify(join(import.meta.dirname, "../../../../src/node/client/index.ts"));
    const options = JSON.stringify(optionsFor(agent));
    const start = `const { connect } = await import(${index}); const client = connect(${options});\n`;
    return ["--input-type=module", "--eval", `${start}${code}\nclient.close();`];
  };

  test('stdio "inherit" connects run() and start() to this program\'s own streams', async () => {
    const script = JSON.stringify("cat; echo oops >&2; exit 4");
    for (const call of [
      `await client.run(["sh", "-c", ${script}], { stdio: "inherit" })`,
      `await client.start(["sh", "-c", ${script}], { stdio: "inherit" }).wait()`,
    ]) {
      const code = `const result = ${call}; console.log("after", result.exitCode, result.stdout ?? "", result.signal);`;
      const { stdout, stderr } = await execa(process.execPath, program(code), { input: "typed\n" });
      assert.deepEqual([stdout, stderr], ["typed\nafter 4  undefined", "oops"]);
    }
  });

  test("run() with inherited stdio lets the program exit although stdin stays open", async () => {
    const code = `await client.run(["echo", "done"], { stdio: "inherit" });`;
    const child = execa(process.execPath, program(code), { stdin: "pipe", reject: false });
    const { stdout, exitCode } = await child;
    assert.deepEqual([stdout, exitCode], ["done", 0]);
  });

  test('stdio "inherit" with a terminal passes keys and restores the local terminal', async () => {
    await using directory = await testDirectory();
    const code = `const { columns: cols, rows } = process.stdout;
      const options = { stdio: "inherit", terminal: { cols, rows }, env: { PS1: "inner-" } };
      const failed = await client.run(["no-such-command"], options).catch((error) => error);
      console.log("failed " + failed.code);
      const result = await client.run(["sh"], options);
      console.log("status " + result.exitCode);`;
    await writeFile(directory.at("program.mjs"), program(code)[2] ?? "");
    await using terminal = new Terminal({ command: ["sh"], cols: 97, rows: 31, env: { ...process.env, PS1: "" } });
    const modes = async (): Promise<string> => {
      terminal.type("stty -g; echo modes-$((1))\n");
      return (await terminal.read(/([0-9a-f:]{20,})\r\nmodes-1\r\n/))[0] ?? assert.fail("no modes");
    };
    const before = await modes();
    terminal.type(`'${process.execPath}' ${directory.at("program.mjs")}\n`);
    await terminal.read(/failed EXEC_NOT_FOUND\r\n/);
    await terminal.read(/inner-/);
    terminal.type("stty size\n");
    await terminal.read(/31 97\r\n/);
    terminal.type("stty -onlcr; printf 'one\\ntwo[end]'; stty onlcr\n");
    await terminal.read(/one\ntwo\[end\]/);
    terminal.type(`exec sh -c 'trap "stty size; exit 5" WINCH; echo ready-$((1)); while :; do sleep 0.05; done'\n`);
    await terminal.read(/ready-1\r\n/);
    terminal.resize(64, 20);
    await terminal.read(/20 64\r\nstatus 5\r\n/);
    assert.equal(await modes(), before);
  });

  test("run() rejects with DESTINATION_FAILED if the standard output that it inherits is closed", async () => {
    const code = `const error = await client.run(["yes"], { stdio: ["ignore", "inherit", "pipe"] }).catch((error) => error);
      console.error(error.code, error.cause.code);`;
    const child = execa(process.execPath, program(code), { buffer: { stdout: false } });
    child.stdout.destroy();
    const { stderr, exitCode } = await child;
    assert.deepEqual([stderr, exitCode], ["DESTINATION_FAILED EPIPE", 0]);
  });

  test('stdio "ignore" drops output, even more than the buffers can hold', async () => {
    const script = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; echo end";
    const all = client.start(["sh", "-c", script], { stdio: "ignore" });
    assert.equal((await all.wait()).exitCode, 0);
    const stdio = ["ignore", "pipe", "ignore"] as const;
    const { stdout, stderr } = await client.run(["sh", "-c", "cat; echo out; seq 1 100000 >&2"], { stdio });
    assert.deepEqual([stdout, stderr], ["out\n", ""]);
  });

  test('stdio "pipe" connects standard input unless the `input` option is given', async () => {
    const cat = client.start(["cat"], { stdio: "pipe" });
    cat.stdin.end("piped");
    assert.equal((await cat.stdout.toArray()).join(""), "piped");
    assert.equal((await client.run(["cat"], { stdio: "pipe" })).stdout, "");
    const { stdout } = await client.run(["cat"], { stdio: ["inherit", "pipe", "pipe"], input: "given" });
    assert.equal(stdout, "given");
  });

  test("an unknown value of the `stdio` option is rejected", async () => {
    for (const stdio of ["overlapped", ["pipe"], [1, 2, 3], null] as unknown as StdioOption[]) {
      const { option, message } = thrownBy(() => client.start(["true"], { stdio }));
      assert.equal(option, "stdio");
      assert.match(message, /^stdio requires "pipe", "inherit" or "ignore"/);
      assert.equal((await failureOf(client.run(["true"], { stdio }))).option, "stdio");
    }
  });
});
