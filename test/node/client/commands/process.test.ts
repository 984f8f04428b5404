import assert from "node:assert/strict";
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { constants } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { ReadableStream } from "node:stream/web";
import { describe, test } from "node:test";
import { type GuestProcess, GuestError, isTransient } from "../../../../src/node/client/index.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { clientOf, failureOf, readUntil } from "../../../fixtures/guest-client.ts";

const MEBIBYTE = 1024 * 1024;

const directory = forAllTests(await testDirectory()).path;
const agent = forAllTests(await startAgent({ process: { env: { LAYER: "process" } } }));
const client = forAllTests(clientOf(agent));

describe("the streams of a command", () => {
  test("a command's web streams carry every byte", async () => {
    const input = randomBytes(5 * MEBIBYTE + 1);
    const process = client.start(["sh", "-c", "cat; echo err >&2"], { stdin: true, encoding: "buffer" });
    const { stdin, stdout, stderr } = process.web;
    assert.equal(process.web.stdout, stdout);
    const source = new Blob([input]).stream() as ReadableStream<Uint8Array>;
    const [, out, err] = await Promise.all([source.pipeTo(stdin), buffer(stdout), text(stderr)]);
    assert.ok(input.equals(out));
    assert.equal(err, "err\n");
    assert.equal((await process.wait()).exitCode, 0);
  });

  test("a command pauses while its web stream is unread, and no byte is lost", async () => {
    const progress = join(directory, "progress");
    const script = 'for i in $(seq 1 64); do head -c 1M /dev/zero; echo "$i" >"$0"; done';
    const process = client.start(["sh", "-c", script, progress]);
    const reader = process.web.stdout.getReader();
    const first = await reader.read();
    let size = first.value?.length ?? 0;
    // Other calls over the same connection: once they are answered, earlier frames have long arrived.
    for (let times = 0; times < 20; times++) await client.health();
    assert.ok(process.stdout.readableLength <= MEBIBYTE, `${process.stdout.readableLength} bytes were waiting`);
    // What may be in flight: windows of both ends, a pipe, a few chunks.
    const written = Number(await readFile(progress, "utf8").catch(() => "0"));
    assert.ok(written < 32, `${written} MiB were written with nobody reading`);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
    }
    assert.equal(size, 64 * MEBIBYTE);
    assert.equal((await process.wait()).exitCode, 0);
  });

  test("stdin's web stream takes input no faster than the command reads", async () => {
    const go = join(directory, "go");
    const process = client.start(["sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.05; done; wc -c', go], { stdin: true });
    let given = 0;
    const total = 48;
    const source = new ReadableStream<Uint8Array>(
      {
        pull(controller): void {
          if (given++ === total) controller.close();
          else controller.enqueue(new Uint8Array(MEBIBYTE));
        },
      },
      { highWaterMark: 0 },
    );
    const sent = source.pipeTo(process.web.stdin);
    const answer = text(process.web.stdout);
    for (let times = 0; times < 20; times++) await client.health();
    assert.ok(given < total / 2, `${given} MiB were taken with nobody reading`);
    await client.files.writeFile(go, new Uint8Array());
    await sent;
    assert.equal((await answer).trim(), String(total * MEBIBYTE));
    assert.equal((await process.wait()).exitCode, 0);
  });

  test("cancelling a command's web stream of stderr does not affect stdout", async () => {
    const process = client.start(["sh", "-c", "head -c 4M /dev/zero >&2; echo out"]);
    await process.web.stderr.cancel();
    assert.equal(await text(process.web.stdout), "out\n");
    assert.equal((await process.wait()).exitCode, 0);
  });

  test("if the source of a command's standard input fails, the command is cancelled", async () => {
    for (const give of [
      ({ stdin }: GuestProcess, source: AsyncIterable<Uint8Array>) => pipeline(Readable.from(source), stdin),
      ({ web }: GuestProcess, source: AsyncIterable<Uint8Array>) => ReadableStream.from(source).pipeTo(web.stdin),
    ]) {
      const process = client.start(["sh", "-c", "cat >/dev/null; echo complete"], { stdin: true });
      async function* failing(): AsyncGenerator<Uint8Array> {
        yield Buffer.from("a part");
        await process.started;
        throw new Error("the disk is gone");
      }
      await assert.rejects(give(process, failing()), /disk is gone/);
      const error = await failureOf(process.wait());
      assert.deepEqual(
        [error.status, error.message],
        ["FAILED_PRECONDITION", "the source of the command's standard input failed: the disk is gone"],
      );
    }
  });

  test("destroying stdin without an error closes the command's standard input", async () => {
    const process = client.start(["cat"], { stdin: true });
    process.stdin.write("so far");
    process.stdin.destroy();
    assert.equal((await buffer(process.stdout)).length, 6);
    assert.equal((await process.wait()).exitCode, 0);
  });

  test("destroying stdin during a large write closes the command's standard input", async () => {
    for (const destroyAfter of [0, 1, 2, 3]) {
      const process = client.start(["wc", "-c"], { stdin: true });
      process.stdin.write(Buffer.alloc(4 * MEBIBYTE));
      for (let turn = 0; turn < destroyAfter; turn++) await new Promise(setImmediate);
      process.stdin.destroy();
      assert.equal((await process.wait()).exitCode, 0, `destroyed after ${destroyAfter} turns`);
    }
  });

  test("files are read and written through Node and web streams", async () => {
    const content = randomBytes(3 * MEBIBYTE + 5);
    const path = join(directory, "content");
    await client.files.writeFile(path, Readable.from(content, { objectMode: false }));
    assert.ok((await readFile(path)).equals(content));
    await client.files.writeFile(path, new Blob([content]).stream() as ReadableStream<Uint8Array>);
    assert.ok((await readFile(path)).equals(content));
    const hash = createHash("sha256");
    await pipeline(client.files.createReadStream(path), hash);
    assert.equal(hash.digest("hex"), createHash("sha256").update(content).digest("hex"));
    const bytes = await buffer(client.files.createReadStream(path).web);
    assert.ok(content.equals(bytes));
    const absent = client.files.createReadStream(join(directory, "absent"));
    await assert.rejects(pipeline(absent, createHash("sha256")), GuestError);
    await assert.rejects(client.files.createReadStream(join(directory, "absent")).web.getReader().read(), GuestError);
  });

  test("a connection remains usable after many cancelled file reads and commands", async () => {
    const path = join(directory, "large");
    await client.files.writeFile(path, new Uint8Array(8 * MEBIBYTE));
    for (let times = 0; times < 24; times++) {
      const reader = client.files.createReadStream(path).web.getReader();
      await reader.read();
      await reader.cancel();
      client.files.createReadStream(path).destroy();
      const process = client.start(["cat", path]);
      await process.started;
      process.cancel();
      assert.equal((await failureOf(process.wait())).status, "CANCELLED");
    }
    assert.equal((await buffer(client.files.createReadStream(path))).length, 8 * MEBIBYTE);
  });
});

describe("GuestProcess", () => {
  test("kill() and wait() resolve only after the command's end", async () => {
    const path = join(directory, "last-words");
    const script = `trap 'echo over >"$0"; exit 7' TERM; echo up; while :; do sleep 0.05; done`;
    const command = client.start(["sh", "-c", script, path]);
    await readUntil(command, "up");
    command.stdout.resume();
    command.stderr.resume();
    command.kill();
    assert.equal((await command.wait()).exitCode, 7);
    assert.equal(await readFile(path, "utf8"), "over\n");
  });

  test("cancel() and `await using` make wait() reject with HUNG_UP", async () => {
    const cancelled = client.start(["sleep", "1000"]);
    await cancelled.started;
    cancelled.cancel();
    const early = client.start(["sleep", "1000"]);
    early.cancel();
    let left;
    {
      await using disposed = client.start(["sleep", "1000"]);
      await disposed.started;
      left = failureOf(disposed.wait());
    }
    for (const failure of [failureOf(cancelled.wait()), failureOf(early.wait()), left]) {
      const error = await failure;
      assert.deepEqual([error.status, error.code, isTransient(error)], ["CANCELLED", "HUNG_UP", false]);
    }
  });

  test("the promise `started` resolves with the command's process id", async () => {
    const process = client.start(["sh", "-c", "echo $$"]);
    assert.equal(String(await process.started), (await text(process.stdout)).trim());
    await process.wait();
  });

  test("the options `env`, `cwd` and `user` reach the command", async () => {
    const script = 'echo "$LAYER $NAME $(pwd) $(id -u)"';
    const options = { env: { NAME: "ä b" }, cwd: "/tmp", user: String(process.getuid?.() ?? 0) };
    const result = await client.run(["sh", "-c", script], options);
    assert.equal(result.stdout, `process ä b /tmp ${process.getuid?.()}\n`);
  });

  test("in `env`, undefined variables are omitted; non-text ones are rejected and named", async () => {
    const { stdout } = await client.run(["sh", "-c", "echo ${A-unset} $B"], { env: { A: undefined, B: "b" } });
    assert.equal(stdout, "unset b\n");
    const env = { PORT: 12_345 } as unknown as Record<string, string>;
    const { code, message } = await failureOf(client.run(["true"], { env }));
    assert.deepEqual([code, message], ["INVALID_ARGUMENT", "env has a variable that is not text: PORT"]);
  });

  test("a command with `keep: undefined` is not kept", async () => {
    assert.equal((await client.run(["true"], { keep: undefined })).exitCode, 0);
    const command = client.start(["true"], { keep: undefined });
    command.stdout.resume();
    command.stderr.resume();
    assert.equal((await command.wait()).exitCode, 0);
  });

  test("run() passes output to onStdout and onStderr, whose errors cancel the command", async () => {
    const path = `/tmp/${randomUUID()}`;
    const pieces: string[] = [];
    const onStdout = async (piece: string): Promise<void> => {
      pieces.push(`out ${piece}`);
      if (pieces.length === 1) await client.files.writeFile(path, "");
    };
    const script = `echo ready; until [ -e ${path} ]; do sleep 0.02; done; rm ${path}; echo gone >&2`;
    const onStderr = (piece: string): number => pieces.push(`err ${piece}`);
    const { stdout } = await client.run(["sh", "-c", script], { onStdout, onStderr });
    assert.deepEqual([pieces, stdout], [["out ready\n", "err gone\n"], "ready\n"]);
    const fail = (): never => {
      throw new RangeError("the caller's own");
    };
    await assert.rejects(client.run(["sh", "-c", "echo; sleep 1000"], { onStdout: fail }), RangeError);
  });

  test("a command has no standard input by default", async () => {
    const process = client.start(["cat"]);
    assert.equal(process.stdin.writableEnded, true);
    assert.equal(await text(process.stdout), "");
    assert.equal((await process.wait()).exitCode, 0);
  });

  test("writing to a command without standard input fails and names the option `stdin`", async () => {
    for (const wait of [false, true]) {
      const process = client.start(["sleep", "1000"]);
      if (wait) await process.started;
      process.stdin.write("input");
      const { code, option, message } = await failureOf(process.wait());
      assert.deepEqual([code, option], ["INVALID_ARGUMENT", "stdin"]);
      assert.match(message, /start the command with stdin: true$/);
    }
  });

  test("a command's `pid` is undefined until `started` has resolved", async () => {
    const process = client.start(["true"]);
    assert.equal(process.pid, undefined);
    assert.equal(await process.started, process.pid);
    await process.wait();
  });

  test("an error's stack names the function that called the library", async () => {
    async function ofThisProgram(): Promise<unknown> {
      const result = await client.run(["/no-such-program"]);
      return result;
    }
    const error = await failureOf(ofThisProgram());
    assert.match(error.stack ?? "", /^GuestError: .*no-such-program[^]*at ofThisProgram /);
    await assert.rejects(client.run(["false"], { check: true }), { name: "CommandError" });
  });

  test("a command on a terminal gets end of file if run() has no input", async () => {
    const result = await client.run(["cat"], { terminal: { cols: 80, rows: 24 } });
    assert.deepEqual([result.exitCode, result.timedOut], [0, false]);
  });

  test("run() drops input that the command does not read", async () => {
    const result = await client.run(["true"], { input: randomBytes(8 * 1024 * 1024) });
    assert.equal(result.exitCode, 0);
  });

  test("invalid Unicode in a command is rejected with field and position", async () => {
    const commands = [
      [["echo", "a\ud800"], {}],
      [["env"], { env: { A: "\udc00" } }],
      [["pwd"], { cwd: "/\ud800" }],
    ] as const;
    for (const [args, options] of commands) {
      assert.throws(
        () => client.start(args, options),
        (error: GuestError) => {
          assert.equal(error.status, "INVALID_ARGUMENT");
          assert.match(error.message, /^(?:args\[1\]|env|cwd) has half of a surrogate pair at index [12];/);
          return true;
        },
      );
    }
  });

  test("signal() ends a command, and the result reports the signal", async () => {
    const process = client.start(["sleep", "1000"]);
    await process.started;
    process.kill(constants.signals.SIGTERM);
    process.stdout.resume();
    const result = await process.wait();
    assert.deepEqual([result.exitCode, result.signal], [143, "SIGTERM"]);
  });

  test("a command on a terminal gets input and terminal size changes", async () => {
    const process = client.start(["sh"], { terminal: { cols: 91, rows: 17, term: "vt100" } });
    for (const cols of [80.5, -1, 65_536, Number.NaN])
      assert.throws(() => process.resize(cols, 24), /cols requires a whole number from 0 to 65535, not /);
    process.stdin.write("stty size; echo $TERM-$((40+2))\n");
    assert.match(await readUntil(process, "vt100-42"), /17 91/);
    process.resize(101, 23);
    process.stdin.write("stty size; echo again-$((40+2))\n");
    assert.match(await readUntil(process, "again-42"), /23 101/);
    process.stdin.end("exit 5\n");
    process.stdout.resume();
    assert.equal((await process.wait()).exitCode, 5);
    assert.equal(await text(process.stderr), "");
  });

  test("if a command cannot start, the error has status, reason and metadata", async () => {
    const process = client.start(["/no/such/command"], { stdin: true });
    for (const error of [await failureOf(process.wait()), await failureOf(process.started)]) {
      assert.deepEqual(
        [error.status, error.reason, error.metadata["errno"]],
        ["NOT_FOUND", "EXEC_NOT_FOUND", "ENOENT"],
      );
      assert.match(error.message, /\/no\/such\/command/);
    }
    await assert.rejects(text(process.stdout), GuestError);
    assert.ok(process.stdin.destroyed);
  });

  test("a command that cannot start does not crash a program without error listeners", async () => {
    const process = client.start(["/no/such/command"]);
    await new Promise((resolve) => process.stdout.once("close", resolve));
    assert.ok(process.stdout.errored instanceof GuestError);
  });
});
