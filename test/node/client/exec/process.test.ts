import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { constants } from "node:os";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { GuestError } from "../../../../src/node/client/index.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { clientOf, failureOf, readUntil } from "../../../fixtures/guest-client.ts";

const agent = forAllTests(await startAgent({ process: { env: { LAYER: "process" } } }));
const client = forAllTests(clientOf(agent));

describe("ExecProcess", () => {
  test("gives the process id of the running command", async () => {
    const process = client.exec({ args: ["sh", "-c", "echo $$"] });
    assert.equal(String(await process.started), (await text(process.stdout)).trim());
    await process.wait();
  });

  test("passes environment, directory and user on", async () => {
    const command = { args: ["sh", "-c", 'echo "$LAYER $NAME $(pwd) $(id -u)"'], env: { NAME: "ä b" }, cwd: "/tmp" };
    const result = await client.run({ ...command, user: String(process.getuid?.() ?? 0) });
    assert.equal(result.stdout.toString(), `process ä b /tmp ${process.getuid?.()}\n`);
  });

  test("carries input byte for byte, keeps stdout and stderr apart and reports the exit code", async () => {
    const input = randomBytes(5 * 1024 * 1024 + 1);
    const result = await client.run({ args: ["sh", "-c", "cat; echo err >&2; exit 7"] }, { input });
    assert.ok(result.stdout.equals(input));
    assert.deepEqual([result.stderr.toString(), result.exitCode, result.signal], ["err\n", 7, 0]);
  });

  test("gives each piece of output to run's onStdout and onStderr as it comes, whose error cancels the command", async () => {
    const path = `/tmp/${randomUUID()}`;
    const pieces: string[] = [];
    const onStdout = async (piece: Buffer): Promise<void> => {
      pieces.push(`out ${piece.toString()}`);
      if (pieces.length === 1) await client.writeFile(path, "");
    };
    const script = `echo ready; until [ -e ${path} ]; do sleep 0.02; done; rm ${path}; echo gone >&2`;
    const onStderr = (piece: Buffer): number => pieces.push(`err ${piece.toString()}`);
    const { stdout } = await client.run({ args: ["sh", "-c", script] }, { onStdout, onStderr });
    assert.deepEqual([pieces, stdout.toString()], [["out ready\n", "err gone\n"], "ready\n"]);
    const fail = (): never => {
      throw new RangeError("the caller's own");
    };
    await assert.rejects(client.run({ args: ["sh", "-c", "echo; sleep 1000"] }, { onStdout: fail }), RangeError);
  });

  test("refuses a line or a list of words as a command, and says what to write instead", async () => {
    for (const command of ["ls -l", ["ls", "-l"]]) {
      const { status, message } = await failureOf(client.run(command as never));
      assert.equal(status, "INVALID_ARGUMENT");
      assert.match(message, /a line for a shell is \{ args: \["sh", "-c", line\] \}$/);
      assert.throws(() => client.exec(command as never), GuestError);
    }
  });

  test("has no standard input unless it was asked for", async () => {
    const process = client.exec({ args: ["cat"] });
    assert.equal(process.stdin.writableEnded, true);
    assert.equal(await text(process.stdout), "");
    assert.equal((await process.wait()).exitCode, 0);
  });

  test("ends the input of a terminal that is given none, so that what reads it ends", async () => {
    const result = await client.run({ args: ["cat"], terminal: { cols: 80, rows: 24 } });
    assert.deepEqual([result.exitCode, result.timedOut], [0, false]);
  });

  test("drops input that the command does not want, and still reports its end", async () => {
    const result = await client.run({ args: ["true"] }, { input: randomBytes(8 * 1024 * 1024) });
    assert.equal(result.exitCode, 0);
  });

  test("sends signals and reports the one that ended the command", async () => {
    const process = client.exec({ args: ["sleep", "1000"] });
    await process.started;
    process.signal(constants.signals.SIGTERM);
    process.stdout.resume();
    const result = await process.wait();
    assert.deepEqual([result.exitCode, result.signal], [143, 15]);
  });

  test("reports the timeout of the command", async () => {
    const result = await client.run({ args: ["sleep", "1000"], timeoutMs: 100 });
    assert.deepEqual([result.timedOut, result.signal], [true, 15]);
  });

  test("runs a command in a terminal, types into it and resizes it", async () => {
    const process = client.exec({ args: ["sh"], terminal: { cols: 91, rows: 17, term: "vt100" } });
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

  test("rejects with status, reason and metadata when the command cannot be started", async () => {
    const process = client.exec({ args: ["/no/such/command"], stdin: true });
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

  test("crashes nobody who asks for nothing", async () => {
    const process = client.exec({ args: ["/no/such/command"] });
    await new Promise((resolve) => process.stdout.once("close", resolve));
    assert.ok(process.stdout.errored instanceof GuestError);
  });
});
