import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import {
  type GuestError,
  isTransient,
  type KeptEvent,
  type KeptOptions,
  type KeptProcess,
} from "../../../../src/node/client/index.ts";
import type { ExecFrame } from "../../../../src/shared/gen/svc/guest/v1alpha1/exec_pb.ts";
import { type EndExecRequest, ExecSessions } from "../../../../src/shared/gen/svc/guest/v1alpha1/exec_sessions_pb.ts";
import { GuestAgent } from "../../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { startAgent } from "../../../fixtures/agent.ts";
import { clientOf, failureOf, optionsFor, readUntil } from "../../../fixtures/guest-client.ts";
import { until } from "../../../fixtures/awake.ts";
import { testDirectory } from "../../../fixtures/files.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { ReleasedSchema } from "../../../fixtures/released-schema.ts";
import { type StandInCall, startStandIn } from "../../../fixtures/stand-in-agent.ts";
import { relayTo } from "../../../fixtures/relay.ts";

const KIBIBYTE = 1024;

/** Options that record events, and a function that waits for an event of a kind. */
function watched(options: KeptOptions = {}): {
  readonly options: KeptOptions;
  readonly events: KeptEvent[];
  readonly next: (kind: KeptEvent["kind"]) => Promise<void>;
} {
  const events: KeptEvent[] = [];
  const waiting = new Map<string, () => void>();
  const onEvent = (event: KeptEvent): void => {
    events.push(event);
    waiting.get(event.kind)?.();
  };
  const next = (kind: KeptEvent["kind"]): Promise<void> => new Promise((resolve) => waiting.set(kind, resolve));
  return { options: { ...options, onEvent }, events, next };
}

const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

describe("a kept command", () => {
  const stateOf = async (name: string) => (await client.commands.list()).find((exec) => exec.name === name);

  test("a kept command continues after detach, and the next client misses nothing", async () => {
    const args = ["sh", "-c", "echo out; echo err >&2; read line; echo got $line; exit 7"];
    const first = client.start(args, { stdin: true, keep: { name: "detached" } });
    await readUntil(first, "out\n");
    const position = await first.detach();
    assert.equal(position.stdoutOffset, 4);
    const left = await failureOf(first.wait());
    assert.deepEqual([left.status, left.reason], ["CANCELLED", undefined]);

    const exec = await stateOf("detached");
    assert.deepEqual([exec?.exit, exec?.execId], [undefined, position.execId]);
    using other = clientOf(agent);
    const second = other.commands.attach("detached", { ...position, stderrOffset: 0 });
    const { execId, stdinOffset, stdinClosed, terminal, pid } = await second.attached;
    assert.deepEqual([execId, stdinOffset, stdinClosed, terminal], [position.execId, 0, false, false]);
    assert.equal(pid, exec?.pid);
    second.stdin.end("hello\n");
    assert.deepEqual(await Promise.all([text(second.stdout), text(second.stderr)]), ["got hello\n", "err\n"]);
    assert.equal((await second.wait()).exitCode, 7);
  });

  test("detach() resolves once the agent has received all written input", async () => {
    const command = client.start(["cat"], { stdin: true, keep: { name: "written" } });
    command.stdin.write("before ");
    const { stdinOffset } = await command.detach();
    assert.equal(stdinOffset, 7);
    const next = client.commands.attach("written");
    next.stdin.end("after");
    assert.equal(await text(next.stdout), "before after");
    assert.equal((await next.wait()).exitCode, 0);
  });

  test("detach() right after stdin.end() delivers all input and its end", async () => {
    await using directory = await testDirectory();
    const input = randomBytes(1024 * KIBIBYTE);
    for (let time = 0; time < 10; time++) {
      const [name, copy] = [`ended-${time}`, directory.at(`${time}`)];
      // Most of the input waits until the agent has acknowledged what precedes it.
      const args = ["sh", "-c", 'sleep 0.1; exec cat > "$1"', "sh", copy];
      const command = client.start(args, { stdin: true, keep: { name } });
      command.stdin.end(input);
      const { stdinOffset } = await command.detach();
      assert.equal(stdinOffset, input.length);
      // Without the end of its input, cat would not exit.
      assert.equal((await client.commands.attach(name).wait()).exitCode, 0);
      assert.ok(input.equals(await readFile(copy)));
    }
  });

  test("a kept command is forgotten after its exit unless `forget` is false", async () => {
    const run = async (name: string, options: KeptOptions): Promise<KeptProcess> => {
      const command = client.start(["true"], { keep: { name }, ...options });
      command.stdout.resume();
      command.stderr.resume();
      await command.wait();
      return command;
    };
    await run("forgotten", {});
    assert.equal(await stateOf("forgotten"), undefined);
    const kept = await run("remembered", { forget: false });
    assert.equal((await stateOf("remembered"))?.exit?.exitCode, 0);
    const told = await run("told", { acknowledge: "manual" });
    assert.equal((await stateOf("told"))?.exit?.exitCode, 0);
    const used = await failureOf(client.start(["true"], { keep: { name: "told" } }).attached);
    assert.deepEqual([used.status, used.reason], ["ALREADY_EXISTS", "EXEC_NAME_IN_USE"]);
    await told.forget();
    assert.equal(await stateOf("told"), undefined);
    await kept.forget();
  });

  test("a second attach() takes over a kept command, and the first does not reconnect", async () => {
    const { options, events, next } = watched({ resume: true });
    const first = client.start(["sleep", "1000"], { keep: { name: "taken" }, ...options });
    await first.attached;
    using other = clientOf(agent);
    const second = other.commands.attach("taken", { fromNow: true });
    const back = next("reconnected").then(() => assert.fail("the earlier call has come back"));
    await second.attached;
    const error = await Promise.race([failureOf(first.wait()), back]);
    assert.deepEqual([error.status, error.reason, events], ["ABORTED", "EXEC_TAKEN_OVER", []]);
    const { exit, forgotten } = await client.commands.end("taken", { killSignal: "SIGKILL" });
    assert.deepEqual([exit?.signal, forgotten], ["SIGKILL", false]);
    assert.equal((await second.wait()).signal, "SIGKILL");
  });

  test("`attach` reports how many output bytes were dropped; with `failOnGap`, it fails", async () => {
    const size = 300 * KIBIBYTE;
    const script = `head -c ${size} /dev/zero; echo end >&2; exec sleep 1000`;
    const keep = { name: "gap", bufferBytes: 64 * KIBIBYTE };
    const first = client.start(["sh", "-c", script], { keep });
    first.stdout.resume();
    await new Promise((resolve) => first.stderr.once("data", resolve));
    await first.detach();
    const { options, events } = watched();
    const second = client.commands.attach("gap", { ...options, stdoutOffset: 0 });
    let received = 0;
    second.stdout.on("data", (bytes: Buffer) => (received += bytes.length));
    while (second.position.stdoutOffset < size) await new Promise(setImmediate);
    const [gap] = events;
    assert.ok(gap?.kind === "gap");
    assert.deepEqual([gap.stream, gap.offset], ["stdout", 0]);
    assert.equal(gap.bytes + received, size);
    const refused = client.commands.attach("gap", { stdoutOffset: 0, failOnGap: true });
    const error = await failureOf(refused.wait());
    assert.deepEqual([error.status, error.code], ["DATA_LOSS", "OUTPUT_LOST"]);
    await client.commands.end("gap");
  });

  test("the result of a kept command whose output has gaps says outputComplete: false", async () => {
    const size = 16 * KIBIBYTE * KIBIBYTE;
    const args = ["head", "-c", String(size), "/dev/zero"];
    // A second connection, because unread output fills the window of the first.
    using other = clientOf(agent);
    const listed = async (name: string) => (await other.commands.list()).find((exec) => exec.name === name);
    const untilEnd = (name: string) =>
      until(async () => (await listed(name))?.exit !== undefined, "the command has ended");
    // Only the first piece waits, because the agent has forgotten the command when the last pieces are delivered.
    let ended: Promise<void> | undefined;
    const run = await client.run(args, { keep: { name: "gaps" }, onStdout: () => (ended ??= untilEnd("gaps")) });
    assert.ok(run.stdout.length < size);
    assert.deepEqual([run.exitCode, run.outputComplete], [0, false]);

    const started = client.start(args, { keep: { name: "gaps" }, forget: false, stdio: "pipe" });
    await untilEnd("gaps");
    started.stdout.resume();
    started.stderr.resume();
    assert.equal((await started.wait()).outputComplete, false);
    // An attach behind the gap receives all output that it requests.
    assert.equal((await client.commands.attach("gaps", { fromNow: true }).wait()).outputComplete, true);

    const keep = { name: "no-gaps", whenFull: "block" } as const;
    const whole = await client.run(args, { keep, onStdout: () => listed("no-gaps") });
    assert.deepEqual([whole.stdout.length, whole.outputComplete], [size, true]);
  });

  test("with manual acknowledgement, the agent keeps output until the client acknowledges it", async () => {
    const size = 256 * KIBIBYTE;
    const keep = { name: "blocked", bufferBytes: 32 * KIBIBYTE, whenFull: "block" } as const;
    const args = ["head", "-c", String(size), "/dev/zero"];
    const command = client.start(args, { keep, acknowledge: "manual" });
    command.stderr.resume();
    let received = 0;
    for await (const bytes of command.stdout) {
      received += bytes.length;
      if (received % keep.bufferBytes > 0) continue;
      assert.equal(Number((await stateOf("blocked"))?.stdoutOffset), received, "nothing is let go of unasked");
      assert.throws(() => command.acknowledge({ stdoutOffset: received + 1 }), { status: "INVALID_ARGUMENT" });
      command.acknowledge({ stdoutOffset: received });
    }
    assert.equal(received, size);
    assert.equal((await command.wait()).exitCode, 0);
    await command.forget();
  });

  test("resize() and kill() called while disconnected take effect after the reconnect", async () => {
    await using proxy = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: proxy.port });
    const { options, next } = watched({ resume: true });
    const script = "trap 'stty size; exit 3' USR1; echo up; while :; do sleep 0.05; done";
    const terminal = { cols: 80, rows: 24 };
    const shell = through.start(["sh", "-c", script], { terminal, keep: { name: "size" }, ...options });
    await readUntil(shell, "up");
    const lost = next("disconnected");
    const back = next("reconnected");
    proxy.cut();
    await lost;
    shell.resize(101, 33);
    shell.kill("SIGUSR1");
    proxy.mend();
    await back;
    assert.match(await text(shell.stdout), /33 101/);
    assert.equal((await shell.wait()).exitCode, 3);
  });

  test("wait() of a disconnected kept command rejects on timeout and abort", async () => {
    await using proxy = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: proxy.port });
    const start = async (name: string, options: KeptOptions) => {
      const { options: all, next } = watched(options);
      const lost = next("disconnected");
      const command = through.start(["sleep", "1000"], { keep: { name }, ...all });
      await command.attached;
      return { command, lost };
    };
    const controller = new AbortController();
    const impatient = await start("impatient", { resume: { timeoutMs: 300 } });
    const aborted = await start("aborted", { resume: true, signal: controller.signal });
    const cancelled = await start("cancelled", { resume: true, signal: controller.signal });
    proxy.cut();
    for (const { lost } of [impatient, aborted, cancelled]) await lost;
    cancelled.command.cancel();
    controller.abort("enough");
    const failures = await Promise.all([impatient, aborted, cancelled].map(({ command }) => failureOf(command.wait())));
    assert.deepEqual(
      failures.map(({ status, cause }) => [status, typeof cause === "string" ? cause : ""]),
      [
        ["UNAVAILABLE", ""],
        ["CANCELLED", "enough"],
        ["CANCELLED", "enough"],
      ],
    );
    for (const name of ["impatient", "aborted", "cancelled"]) await client.commands.end(name);
  });

  test("a kept command that is cancelled while disconnected ends after the reconnect", async () => {
    await using proxy = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: proxy.port });
    const { options, next } = watched({ resume: true });
    const command = through.start(["cat"], { stdin: true, keep: { name: "cancelled-late" }, ...options });
    await command.attached;
    const [lost, back] = [next("disconnected"), next("reconnected")];
    proxy.cut();
    await lost;
    command.cancel();
    const failure = failureOf(command.wait());
    assert.equal((await stateOf("cancelled-late"))?.exit, undefined);
    proxy.mend();
    await back;
    const { status, code } = await failure;
    assert.deepEqual([status, code], ["CANCELLED", "HUNG_UP"]);
    assert.equal(await stateOf("cancelled-late"), undefined);
  });

  test("wait() rejects with CANCEL_UNCONFIRMED if a cancelled command may still run", async () => {
    await using proxy = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: proxy.port });
    const { options, next } = watched({ resume: { timeoutMs: 300 } });
    const [disconnected, undetected] = [
      through.start(["sleep", "1000"], { keep: { name: "unreached" }, ...options }),
      through.start(["sleep", "1000"], { keep: { name: "undetected" } }),
    ];
    await Promise.all([disconnected.attached, undetected.attached]);
    const lost = next("disconnected");
    // The client has not yet noticed that its connection is lost.
    proxy.cut();
    undetected.cancel();
    await lost;
    disconnected.cancel();
    for (const command of [disconnected, undetected]) {
      const error = await failureOf(command.wait());
      assert.deepEqual([error.status, error.code, isTransient(error)], ["CANCELLED", "CANCEL_UNCONFIRMED", false]);
      assert.match(error.message, /may still be running: .*; call commands\.end\("un(?:reached|detected)"\)$/);
      assert.equal((error.cause as GuestError).status, "UNAVAILABLE");
    }
    for (const name of ["unreached", "undetected"]) await client.commands.end(name);
  });

  test("wait() of a kept command rejects when cancel() has ended the command", async () => {
    const script = "trap 'echo bye; exit 3' HUP; echo up; while :; do sleep 0.05; done";
    const command = client.start(["sh", "-c", script], { keep: { name: "awaited" } });
    await readUntil(command, "up\n");
    command.cancel();
    assert.equal((await failureOf(command.wait())).code, "HUNG_UP");
    assert.equal(await stateOf("awaited"), undefined);
  });

  test("cancel() sends SIGHUP to a kept command and forgets it", async () => {
    const script = "trap 'exit 3' HUP; while :; do sleep 0.05; done";
    const command = client.start(["sh", "-c", script], { keep: { name: "hung" } });
    await command.attached;
    using other = clientOf(agent);
    const failure = failureOf(command.wait());
    command.cancel();
    const { status, code } = await failure;
    assert.deepEqual([status, code], ["CANCELLED", "HUNG_UP"]);
    await until(async () => !(await other.commands.list()).some(({ name }) => name === "hung"), "it is forgotten");
  });

  test("cancel() and forget() never affect another client's command", async () => {
    const owner = client.start(["cat"], { stdin: true, keep: { name: "owned" } });
    await owner.attached;
    using other = clientOf(agent);
    const start = () => other.start(["cat"], { stdin: true, keep: { name: "owned" } });
    const [early, refused] = [start(), start()];
    early.cancel();
    assert.equal((await failureOf(early.wait())).code, "HUNG_UP");
    assert.equal((await failureOf(refused.wait())).code, "EXEC_NAME_IN_USE");
    refused.cancel();
    assert.equal((await failureOf(refused.forget())).code, "EXEC_NAME_IN_USE");
    assert.equal((await failureOf(early.forget())).code, "HUNG_UP");

    const left = other.commands.attach("owned");
    await left.detach();
    left.cancel();
    assert.equal((await failureOf(left.forget())).code, "DETACHED");
    const taken = other.commands.attach("owned");
    await taken.attached;
    const heir = other.commands.attach("owned");
    await heir.attached;
    assert.equal((await failureOf(taken.wait())).code, "EXEC_TAKEN_OVER");
    taken.cancel();
    assert.equal((await failureOf(taken.forget())).code, "EXEC_TAKEN_OVER");

    // One connection keeps the order of its calls: a signal of those before would have come first.
    heir.stdin.end("alive");
    assert.equal(await text(heir.stdout), "alive");
    assert.equal((await heir.wait()).exitCode, 0);
  });

  test("cancel() and forget() send EndExec only after the agent has started the command", async () => {
    const ends: unknown[] = [];
    const starts: StandInCall[] = [];
    await using standIn = await startStandIn({
      service: [GuestAgent, ExecSessions],
      serves: { Exec: (call) => void starts.push(call) },
      answers: {
        EndExec: (request) => {
          const { name, execId, signal, forget } = request as EndExecRequest;
          ends.push([name, execId, signal, forget]);
          return {};
        },
      },
    });
    const started = (execId: string, kept = true) => ({ frame: { case: "started", value: { pid: 7, kept, execId } } });
    const begin = async (name: string) => {
      const command = standIn.client.start(["make"], { keep: { name }, acknowledge: "manual" });
      await standIn.called("Exec", starts.length + 1);
      return { command, agent: starts.at(-1) };
    };
    const hung = await begin("hung");
    hung.command.cancel();
    assert.equal((await failureOf(hung.command.wait())).code, "HUNG_UP");
    assert.deepEqual(ends, []);
    hung.agent?.send(started("id-1"));
    await standIn.called("EndExec");

    const forgotten = await begin("forgotten");
    const forgetting = forgotten.command.forget();
    assert.equal(ends.length, 1);
    forgotten.agent?.send(started("id-2"));
    await forgetting;

    // An agent of before kept commands ends the command with its call.
    const older = await begin("older");
    older.command.cancel();
    older.agent?.send(started("", false));
    await standIn.cancelled("Exec");
    assert.deepEqual(ends, [
      ["hung", "id-1", 1, true],
      ["forgotten", "id-2", 0, false],
    ]);
  });

  test("input for a kept command without standard input is dropped", async () => {
    const command = client.start(["sleep", "1000"], { keep: { name: "deaf" } });
    await command.attached;
    const { stdin, attached } = client.commands.attach("deaf");
    await attached;
    await new Promise<void>((resolve, reject) => {
      stdin.write(Buffer.alloc(512 * KIBIBYTE * KIBIBYTE), (error) => (error ? reject(error) : resolve()));
    });
    await client.commands.end("deaf");
  });

  test("after client.close(), a kept command's call fails when its connection breaks", async () => {
    await using proxy = await relayTo(agent.port);
    const through = clientOf({ ...agent, port: proxy.port });
    const command = through.start(["sleep", "1000"], { keep: { name: "closed" }, resume: true });
    await command.attached;
    through.close();
    proxy.cut();
    assert.equal((await failureOf(command.wait())).status, "UNAVAILABLE");
    await client.commands.end("closed");
  });

  test("a kept command's client retries if a reconnection attempt gets no answer", async () => {
    await using proxy = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: proxy.port });
    const { options, next } = watched({ resume: true });
    const command = through.start(["cat"], { stdin: true, keep: { name: "frozen" }, ...options });
    await command.attached;
    const back = next("reconnected");
    const caught = proxy.freeze();
    command.stdin.end("typed meanwhile");
    await caught;
    proxy.mend();
    await back;
    assert.equal(await text(command.stdout), "typed meanwhile");
  });

  test("the `connectOptions` callback supplies a new address and credentials for each reconnect", async () => {
    const gone = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: gone.port });
    let asked = 0;
    const connectOptions = () => {
      const options = optionsFor(agent);
      return ++asked === 1 ? { ...options, token: "not-there-yet-0123456789" } : options;
    };
    const { options, next } = watched({ resume: { connectOptions } });
    const command = through.start(["cat"], { stdin: true, keep: { name: "moved" }, ...options });
    await command.attached;
    const back = next("reconnected");
    await gone[Symbol.asyncDispose]();
    await back;
    assert.equal(asked, 2);
    command.stdin.end("over there");
    assert.equal(await text(command.stdout), "over there");
    assert.equal((await command.wait()).exitCode, 0);
    assert.equal(await stateOf("moved"), undefined);
  });

  test("a reconnect fails at its time limit if the `connectOptions` callback hangs", async () => {
    await using directory = await testDirectory();
    const gone = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: gone.port }, { connectTimeoutMs: 2_000 });
    let asked = 0;
    const connectOptions = (): Promise<never> => {
      asked++;
      return new Promise(() => undefined);
    };
    const resume = { connectOptions, timeoutMs: 3_000 };
    const command = through.start(["cat"], { stdin: true, keep: { name: "unsettled" }, resume });
    const watch = through.files.watch(directory.path, { resume });
    await Promise.all([command.attached, watch.next()]);
    const next = watch.next();
    next.catch(() => undefined);
    await gone[Symbol.asyncDispose]();
    for (const failing of [command.wait(), next]) assert.equal((await failureOf(failing)).code, "DIAL_TIMED_OUT");
    assert.ok(asked > 2, `asked ${asked} times`);
    await client.commands.end("unsettled", { forget: true });
  });

  test("an aborted or abandoned call stops waiting for a hanging `connectOptions` callback", async () => {
    await using directory = await testDirectory();
    const gone = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: gone.port }, { connectTimeoutMs: 10_000 });
    const asked = Array.from({ length: 3 }, () => Promise.withResolvers<void>());
    const hanging = (index: number) => ({
      connectOptions: (): Promise<never> => {
        asked[index]?.resolve();
        return new Promise(() => undefined);
      },
    });
    const stop = new AbortController();
    const { signal } = stop;
    const options = { stdin: true, keep: { name: "undialled" }, resume: hanging(0), signal };
    const command = through.start(["cat"], options);
    const watch = through.files.watch(directory.path, { resume: hanging(1), signal });
    const left = through.files.watch(directory.path, { resume: { ...hanging(2), timeoutMs: 20_000 } });
    await Promise.all([command.attached, watch.next(), left.next()]);
    const [next, last] = [watch.next(), left.next()];
    for (const pending of [next, last]) pending.catch(() => undefined);
    await gone[Symbol.asyncDispose]();
    await Promise.all(asked.map(({ promise }) => promise));
    stop.abort();
    for (const failing of [command.wait(), next]) assert.equal((await failureOf(failing)).code, "ABORT_ERR");
    await left.return?.();
    await client.commands.end("undialled", { forget: true });
  });

  test("an `onStdout` callback that never settles does not delay an abort", async () => {
    for (const call of [
      (options: object) => client.run(["echo", "x"], options),
      (options: object) => client.start(["echo", "x"], options).wait(),
    ]) {
      const stop = new AbortController();
      const onStdout = (): Promise<never> => {
        stop.abort();
        return new Promise(() => undefined);
      };
      assert.equal((await failureOf(call({ onStdout, signal: stop.signal }))).code, "ABORT_ERR");
    }
  });

  test("an abort after a command's end does not change its result", async () => {
    const stop = new AbortController();
    const command = client.start(["sh", "-c", "exit 3"], { signal: stop.signal });
    command.stdout.resume();
    command.stderr.resume();
    await Promise.all([once(command.stdout, "close"), once(command.stderr, "close")]);
    stop.abort();
    assert.equal((await command.wait()).exitCode, 3);
  });

  test("if the `connectOptions` callback fails, forget() rejects and can be retried", async () => {
    const gone = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: gone.port });
    let areThere = true;
    const connectOptions = () => {
      if (!areThere) throw new TypeError("the credentials are just being replaced");
      return optionsFor(agent);
    };
    const { options, next } = watched({ forget: false, resume: { connectOptions } });
    const command = through.start(["cat"], { stdin: true, keep: { name: "unforgotten" }, ...options });
    await command.attached;
    const back = next("reconnected");
    await gone[Symbol.asyncDispose]();
    await back;
    command.stdin.end();
    await command.wait();
    areThere = false;
    const error = await failureOf(command.forget());
    assert.deepEqual(
      [error.status, /cannot connect to the agent: .*replaced/.test(error.message)],
      ["UNAVAILABLE", true],
    );
    areThere = true;
    await command.forget();
    assert.equal(await stateOf("unforgotten"), undefined);
  });

  test("a kept command without `resume` fails when disconnected and can be attached again", async () => {
    await using proxy = await relayTo(agent.port);
    using through = clientOf({ ...agent, port: proxy.port });
    const command = through.start(["sh", "-c", "echo one; exec cat"], { stdin: true, keep: { name: "plain" } });
    await readUntil(command, "one\n");
    proxy.cut();
    assert.equal((await failureOf(command.wait())).status, "UNAVAILABLE");
    const again = client.commands.attach("plain", command.position);
    again.stdin.end("two\n");
    assert.equal(await text(again.stdout), "two\n");
  });

  test("calls for a kept command with an invalid or unknown name fail", async () => {
    const { status, reason } = await failureOf(client.start(["true"], { keep: { name: "no/name" } }).wait());
    assert.deepEqual([status, reason], ["INVALID_ARGUMENT", "INVALID_FIELD"]);
    const unknown = [
      client.commands.attach("nobody").wait(),
      client.commands.end("nobody"),
      client.commands.signal("nobody", "SIGTERM"),
    ];
    for (const error of await Promise.all(unknown.map(failureOf)))
      assert.deepEqual([error.status, error.reason], ["NOT_FOUND", "EXEC_UNKNOWN"]);
  });
});

describe("an agent that was rolled back", () => {
  test("a kept command fails with INPUT_LOST if a rollback discarded acknowledged input", async () => {
    const received: string[] = [];
    let calls = 0;
    await using rolledBack = await startStandIn({
      service: GuestAgent,
      serves: {
        Exec: (call) => {
          const isFirst = ++calls === 1;
          call.send({ frame: { case: "started", value: { pid: 12, kept: true, execId: "e", stdin: true } } });
          call.on("data", (message) => {
            const { frame } = message as ExecFrame;
            if (frame.case !== "stdin") return;
            received.push(Buffer.from(frame.value).toString());
            if (isFirst) call.send({ frame: { case: "stdinAck", value: { offset: 3n } } });
          });
        },
      },
    });
    const { options, next } = watched({ resume: true });
    const command = rolledBack.client.start(["cat"], { stdin: true, keep: { name: "rolled" }, ...options });
    command.stdin.write("abc");
    while (command.position.stdinOffset < 3) await new Promise(setImmediate);
    const lost = next("disconnected");
    rolledBack.drop();
    await lost;
    command.stdin.write("def");
    const error = await failureOf(command.wait());
    assert.deepEqual([error.status, error.code, received], ["ABORTED", "INPUT_LOST", ["abc"]]);
    assert.match(error.message, /had acknowledged 3 bytes of the command's standard input, but now has only 0/);
  });
});

describe("an agent that cannot keep commands", () => {
  test("the `keep` option fails with KEEP_UNSUPPORTED on agents that lack it", async () => {
    await using older = await startStandIn({
      service: new ReleasedSchema().service(),
      version: "0.1.0",
      serves: { Exec: (call) => call.send({ frame: { case: "started", value: { pid: 12 } } }) },
    });
    const command = older.client.start(["make"], { stdin: true, keep: { name: "build" }, resume: true });
    command.stdin.write("never sent");
    for (const error of [await failureOf(command.wait()), await failureOf(command.attached)]) {
      assert.deepEqual([error.status, error.code], ["FAILED_PRECONDITION", "KEEP_UNSUPPORTED"]);
      assert.match(error.message, /the agent \(version 0\.1\.0\) cannot keep commands/);
    }
    await older.cancelled("Exec");
    assert.equal((await failureOf(older.client.commands.list())).status, "UNIMPLEMENTED");
  });
});
