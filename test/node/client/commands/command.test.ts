import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { describe, test } from "node:test";
import { CommandError, type GuestProcess } from "../../../../src/node/client/index.ts";
import { GuestAgent } from "../../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { clientOf, failureOf, thrownBy } from "../../../fixtures/guest-client.ts";
import { processGone } from "../../../fixtures/proc.ts";
import { startStandIn } from "../../../fixtures/stand-in-agent.ts";

const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

/** A script that writes "ä" in two pieces, the second once it gets a line of input. */
const HALVES = String.raw`printf '\303'; read line; printf '\244\nend'`;

describe("output of a command", () => {
  test('run() returns text, and bytes with encoding: "buffer"', async () => {
    const script = String.raw`printf 'ä\377'; printf 'é' >&2`;
    const { stdout, stderr } = await client.run(["sh", "-c", script]);
    assert.deepEqual([stdout, stderr], ["ä\ufffd", "é"]);
    const bytes = await client.run(["sh", "-c", script], { encoding: "buffer" });
    assert.deepEqual([bytes.stdout, bytes.stderr], [Buffer.from("c3a4ff", "hex"), Buffer.from("é")]);
  });

  test("onStdout receives a multi-byte character whole, even if its bytes arrive separately", async () => {
    const halves = String.raw`printf '\303'; sleep 0.2; printf '\244'; sleep 0.2; printf '\303'`;
    const pieces: string[] = [];
    const { stdout } = await client.run(["sh", "-c", halves], { onStdout: (piece) => pieces.push(piece) });
    assert.deepEqual([pieces.join(""), stdout], ["ä\ufffd", "ä\ufffd"]);
    assert.ok(
      pieces.every((piece) => piece === "ä" || piece === "\ufffd" || piece === "ä\ufffd"),
      pieces.join("|"),
    );
    const bytes: Buffer[] = [];
    await client.run(["sh", "-c", halves], { encoding: "buffer", onStdout: (piece) => bytes.push(piece) });
    assert.deepEqual(Buffer.concat(bytes), Buffer.from("c3a4c3", "hex"));
  });

  test("a command's streams yield text, or bytes with the `buffer` encoding", async () => {
    const text = client.start(["sh", "-c", HALVES], { stdin: true });
    text.stdin.end("\n");
    const pieces = await Array.fromAsync(text.stdout);
    assert.deepEqual([pieces.join(""), pieces.includes("\ufffd")], ["ä\nend", false]);
    const bytes = client.start(["printf", "ä"], { encoding: "buffer" });
    assert.deepEqual(await Array.fromAsync(bytes.stdout), [Buffer.from("ä")]);
    const web = client.start(["sh", "-c", "echo ä >&2"]).web;
    assert.deepEqual(await Array.fromAsync(web.stderr as AsyncIterable<string>), ["ä\n"]);
  });

  test("a command's decoded output does not depend on how its bytes are split", async () => {
    await using directory = await testDirectory();
    const path = directory.at("random");
    // Many beginnings of characters, whole characters and wrong bytes.
    const alphabet = [...Buffer.from("aäभ😀"), 0xff, 0xc0];
    const bytes = Buffer.from(Array.from(randomBytes(512 * 1024), (byte) => alphabet[byte % alphabet.length] ?? 0));
    await writeFile(path, bytes);
    const slowly = ["dd", `if=${path}`, "bs=1021", "status=none"];
    for (const process of [client.start(slowly), client.start(slowly, { keep: { name: randomUUID() } })]) {
      process.stderr.resume();
      assert.ok((await Array.fromAsync(process.stdout)).join("") === bytes.toString());
      await process.wait();
    }
  });

  test("lines() yields whole lines without line ends, even if output arrives in pieces", async () => {
    const process = client.start(["sh", "-c", String.raw`printf 'one\r\n\ntw'; sleep 0.1; ${HALVES}`], { stdin: true });
    process.stdin.end("\n");
    assert.deepEqual(await Array.fromAsync(process.lines()), ["one", "", "twä", "end"]);
    const errors = client.start(["sh", "-c", "echo a >&2; echo b >&2"]);
    assert.deepEqual(await Array.fromAsync(errors.lines({ from: "stderr" })), ["a", "b"]);
    assert.deepEqual(await Array.fromAsync(client.start(["true"])), []);
  });

  test("a kept command's `position` counts bytes although its reader gets text", async () => {
    const name = randomUUID();
    const kept = client.start(["sh", "-c", HALVES], { keep: { name }, stdin: true });
    kept.stderr.resume();
    // The first byte of "ä" has arrived, but it is not read: the next client gets it again.
    while ((await client.commands.list()).find((each) => each.name === name)?.heldBytes !== 1);
    await client.health();
    const position = await kept.detach();
    assert.equal(position.stdoutOffset, 0);
    const again = client.commands.attach(name, position);
    again.stdin.end("\n");
    assert.deepEqual(await Array.fromAsync(again.lines()), ["ä", "end"]);
    assert.equal(again.position.stdoutOffset, 6);
    await again.wait();
  });

  test("a kept command's `position` counts exactly the bytes that read() has returned", async () => {
    const text = "aä€😀".repeat(50);
    const kept = client.start(["printf", text], { keep: { name: randomUUID() }, forget: false });
    kept.stderr.resume();
    await new Promise((resolve) => kept.stdout.once("readable", resolve));
    let read = "";
    for (let size = 1; read.length < 200; size = (size % 5) + 1) {
      read += String(kept.stdout.read(size) ?? assert.fail("nothing to read"));
      // Half of a surrogate pair is unread.
      const whole = /[\ud800-\udbff]$/.test(read) ? read.slice(0, -1) : read;
      assert.equal(kept.position.stdoutOffset, Buffer.byteLength(whole), JSON.stringify(read));
    }
    kept.stdout.resume();
    await kept.wait();
    assert.equal(kept.position.stdoutOffset, Buffer.byteLength(text));
    await kept.forget();
  });

  test("the `encoding` option and setEncoding() reject an unsupported output encoding", async () => {
    const kept = client.start(["true"], { keep: { name: randomUUID() }, encoding: "buffer" });
    assert.match(thrownBy(() => kept.stdout.setEncoding("utf8")).message, /kept command .* without this option/);
    const text = client.start(["true"]);
    assert.equal(text.stdout.setEncoding("utf8"), text.stdout);
    assert.match(
      thrownBy(() => text.stdout.setEncoding("hex")).message,
      /read it as hex, start the command with encoding/,
    );
    const hex = client.start(["printf", "ä"], { encoding: "buffer" });
    hex.stdout.setEncoding("hex");
    assert.deepEqual(await hex.stdout.toArray(), ["c3a4"]);
    for (const process of [kept, text, hex]) for (const stream of [process.stdout, process.stderr]) stream.resume();
    await Promise.all([kept.wait(), text.wait(), hex.wait()]);
    const encoding = "hex" as never;
    for (const call of [
      () => client.start(["true"], { encoding }),
      () => client.commands.attach("any", { encoding }),
      () => client.commands.workloadOutput({ encoding }),
    ])
      assert.deepEqual(
        [thrownBy(call).option, thrownBy(call).message],
        ["encoding", 'encoding is "hex"; give "utf8" for text or "buffer" for bytes'],
      );
    assert.equal((await failureOf(client.run(["true"], { encoding }))).option, "encoding");
  });
});

describe("run with check", () => {
  const failed = async (script: string, options: object = {}): Promise<CommandError> => {
    const error = await failureOf(client.run(["sh", "-c", script, "secret"], { check: true, ...options }));
    assert.ok(error instanceof CommandError, String(error));
    return error;
  };

  test("run() with `check` rejects with command, exit code and stderr's last lines", async () => {
    const error = await failed("echo result; seq 1 2000 >&2; printf 'bad\\033[31m\\n' >&2; exit 3");
    assert.deepEqual(
      [error.code, error.exitCode, error.signal, error.stdout],
      ["COMMAND_FAILED", 3, undefined, "result\n"],
    );
    assert.deepEqual([error.command[0], error.command[3]], ["sh", "secret"]);
    assert.match(error.message, /^sh failed with exit code 3: \d+\n[^]*\n2000\nbad\\x1b\[31m$/);
    assert.ok(error.message.length < 2_100 && !error.message.includes("secret"), error.message);
    assert.ok(error.result.stderr.toString().startsWith("1\n2\n"));
  });

  test("run() with `check` says which signal or time limit ended the command", async () => {
    const killed = await failed("kill -KILL $$");
    assert.deepEqual([killed.message, killed.signal, killed.exitCode], ["sh was ended by SIGKILL", "SIGKILL", 137]);
    const late = await failed("exec sleep 1000", { timeoutMs: 1_000 });
    assert.deepEqual([late.message, late.timedOut], ["sh was ended because it took longer than timeoutMs", true]);
  });

  test("run() with `check` returns the result of a successful command", async () => {
    assert.equal((await client.run(["echo", "fine"], { check: true })).stdout, "fine\n");
  });

  test("a signal without a name is reported by number, such as SIG40", async () => {
    const { signal, exitCode } = await client.run(["bash", "-c", "kill -40 $$"]);
    assert.deepEqual([signal, exitCode], ["SIG40", 168]);
    const process = client.start(["sleep", "1000"]);
    process.kill("SIG40");
    assert.equal((await process.wait()).signal, "SIG40");
  });
});

describe("the end of a started command", () => {
  const sleeper = async (): Promise<{ process: GuestProcess; pid: number }> => {
    const process = client.start(["sh", "-c", "echo one; echo two; exec sleep 1000"]);
    return { process, pid: await process.started };
  };

  test("kill() sends SIGTERM by default", async () => {
    const { process } = await sleeper();
    process.kill();
    assert.equal((await process.wait()).signal, "SIGTERM");
  });

  test("leaving a loop over a command's lines or stream ends the command", async () => {
    for (const output of [({ stdout }: GuestProcess) => stdout, (process: GuestProcess) => process.lines()]) {
      const { process, pid } = await sleeper();
      for await (const _ of output(process)) break;
      const error = await failureOf(process.wait());
      assert.deepEqual([error.status, error.code], ["CANCELLED", "STREAM_LEFT"]);
      await processGone(pid);
    }
  });

  test("an error inside a loop over a command's output ends the command", async () => {
    const { process, pid } = await sleeper();
    const loop = async (): Promise<void> => {
      for await (const _ of process) throw new RangeError("the caller's own");
    };
    await assert.rejects(loop(), RangeError);
    await processGone(pid);
  });

  test("leaving an output loop with `destroyOnReturn: false` does not cancel the command", async () => {
    const process = client.start(["sh", "-c", "echo one; echo two; exit 4"]);
    for await (const _ of process.stdout.iterator({ destroyOnReturn: false })) break;
    assert.equal((await process.wait()).exitCode, 4);
  });

  test("`await using` ends an ordinary command, but only detaches from a kept one", async () => {
    let ended = 0;
    {
      await using process = client.start(["sleep", "1000"]);
      ended = await process.started;
    }
    await processGone(ended);
    const name = randomUUID();
    {
      await using kept = client.start(["sleep", "1000"], { keep: { name } });
      await kept.started;
    }
    const { exit } = await client.commands.end(name, { forget: true });
    assert.equal(exit?.signal, "SIGTERM", "the disposal had not ended it");
  });

  test("leaving a loop over a kept command's output detaches from it", async () => {
    const name = randomUUID();
    const kept = client.start(["sh", "-c", "echo one; echo two; exec sleep 1000"], { keep: { name } });
    for await (const line of kept) if (line === "one") break;
    assert.equal((await failureOf(kept.wait())).code, "DETACHED");
    const listed = (await client.commands.list()).find((each) => each.name === name);
    assert.ok(listed !== undefined && listed.exit === undefined);
    await client.commands.end(name, { forget: true });
  });

  test("run() with the `keep` option runs a kept command and forgets it", async () => {
    const name = randomUUID();
    const { stdout } = await client.run(["cat"], { input: "kept", keep: { name } });
    assert.equal(stdout, "kept");
    assert.ok((await client.commands.list()).every((each) => each.name !== name));
  });
});

describe("requestTimeoutMs of a command", () => {
  test("`requestTimeoutMs` does not limit a command that has started", async () => {
    const options = { requestTimeoutMs: 2_000, timeoutMs: Infinity };
    const { exitCode, stdout } = await client.run(["sh", "-c", "sleep 2.2; echo late"], options);
    assert.deepEqual([exitCode, stdout], [0, "late\n"]);
  });

  test("a command's start fails after `requestTimeoutMs` if the agent does not answer", async () => {
    await using silent = await startStandIn({ service: GuestAgent });
    for (const keep of [undefined, { name: "kept" }]) {
      const options = keep === undefined ? { requestTimeoutMs: 50 } : { requestTimeoutMs: 50, keep };
      let error = await failureOf(silent.client.run(["true"], options));
      // Until there is a connection, the start is not sent, so the error is retryable.
      while (error.retryable) error = await failureOf(silent.client.run(["true"], options));
      assert.equal(error.status, "DEADLINE_EXCEEDED");
      assert.match(error.message, /^no answer from the agent within 50 ms$/);
      await silent.cancelled("Exec");
    }
  });
});
