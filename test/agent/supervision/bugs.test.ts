import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { type RunningAgent, SOURCES_COMMAND, startAgent } from "../../fixtures/agent.ts";
import { exec, ExecStream } from "../../fixtures/exec-stream.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { echo, listener } from "../../fixtures/listeners.ts";
import { NEEDS_INSIGHT } from "../../fixtures/privileges.ts";
import { processesWith } from "../../fixtures/proc.ts";
import { RawHttp2 } from "../../fixtures/raw-http2.ts";
import { RpcFailure } from "../../fixtures/rpc-clients.ts";

const INTERNAL = 13;

/** Runs in the agent before it: where the file names an entry from the event loop, the next call of that throws. */
const INJECTED = (file: string): string => `
  const { readFileSync, unlinkSync } = process.getBuiltinModule("node:fs");
  const fire = (entry) => {
    let asked = "";
    try { asked = readFileSync(${JSON.stringify(file)}, "utf8"); } catch {}
    if (asked === "storm") setInterval(() => { throw new TypeError("injected without end"); }, 1);
    if (asked !== entry && asked !== "storm") return;
    unlinkSync(${JSON.stringify(file)});
    if (entry === "ring") throw new RangeError("Array buffer allocation failed");
    throw new TypeError("injected into " + entry);
  };
  const then = (entry, run) => (...args) => { run(...args); fire(entry); };
  for (const name of ["setTimeout", "setInterval", "setImmediate"]) {
    const original = globalThis[name];
    globalThis[name] = (run, ...rest) => original(then(name, run), ...rest);
  }
  const construct = (target, args) => {
    if (args[0] > 7_000_000) fire("ring");
    return Reflect.construct(target, args);
  };
  globalThis.Uint8Array = new Proxy(Uint8Array, { construct });
  const { dlopen } = process;
  process.dlopen = (module, ...rest) => {
    dlopen.call(process, module, ...rest);
    const { FdWatch, spawn } = module.exports;
    for (const name of ["realtimeNs", "write", "read", "resizeTerminal", "peekEnd"]) {
      const original = module.exports[name];
      module.exports[name] = (...args) => { fire(name); return original(...args); };
    }
    module.exports.spawn = (block, settings, done) => spawn(block, settings, then("spawn", done));
    module.exports.FdWatch = class extends FdWatch {
      constructor(fd, run) { fire("new FdWatch"); super(fd, then("FdWatch", run)); }
    };
  };
`;

const directory = forAllTests(await testDirectory());
const arm = (entry: string, file = "entry"): void => writeFileSync(directory.at(file), entry);
const start = (file: string, workload: readonly string[] = []): Promise<RunningAgent> => {
  const [node, ...args] = SOURCES_COMMAND;
  const preload = `data:text/javascript,${encodeURIComponent(INJECTED(directory.at(file)))}`;
  return startAgent({ command: [node, "--import", preload, ...args], process: { args: workload } });
};
const agent = forAllTests(await start("entry", ["sleep", "1000"]));

describe("a bug of the agent", () => {
  /** The agent has logged its stack, and serves a newcomer. */
  async function isSurvived(event: "internal_error" | "call_failed", entry: string): Promise<void> {
    await agent.logged(event, ({ error }) => String(error).includes(`injected into ${entry}\n    at `));
    using guest = clientOf(agent);
    assert.equal((await guest.health()).ready, true);
    assert.equal((await exec(agent, { args: ["echo", "on"] })).stdout.toString(), "on\n");
  }

  const failsInternally = (error: unknown): boolean => error instanceof RpcFailure && error.code === INTERNAL;

  test("an exception while the agent handles request headers ends only that request", async () => {
    using peer = await RawHttp2.dial(agent);
    assert.equal(await peer.ask("Health", agent.token), "0");
    arm("realtimeNs");
    assert.equal(await peer.resetCode(peer.call("Health", agent.token)), 2);
    assert.equal(await peer.ask("Health", agent.token), "0");
    await isSurvived("internal_error", "realtimeNs");
  });

  for (const [frame, entry, send] of [
    ["stdin", "write", (stream: ExecStream) => stream.stdin("more")],
    ["resize", "resizeTerminal", (stream: ExecStream) => stream.send({ case: "resize", value: { cols: 9, rows: 9 } })],
  ] as const) {
    test(`a bug in a ${frame} frame ends its call with INTERNAL`, async () => {
      using stream = new ExecStream(agent);
      const terminal = frame === "resize" ? { cols: 80, rows: 24 } : undefined;
      await stream.start({ args: ["sh", "-c", "echo up; exec cat"], stdin: true, terminal }).until("up");
      arm(entry);
      send(stream);
      await assert.rejects(stream.until("never"), failsInternally);
      await isSurvived("call_failed", entry);
    });
  }

  test("a command ends if an exception occurs while its output is read", async () => {
    using stream = new ExecStream(agent);
    await stream.start({ args: ["sh", "-c", "while echo up; do sleep 0.02; done"] }).until("up");
    arm("read");
    assert.equal((await stream.outcome()).exit.outputComplete, false);
    await isSurvived("internal_error", "read");
  });

  test("if a tunnel's FdWatch throws, the tunnel fails and is closed", NEEDS_INSIGHT, async () => {
    await using server = await listener(echo);
    using guest = clientOf(agent);
    await guest.health();
    const open = readdirSync(`/proc/${agent.pid}/fd`).length;
    arm("new FdWatch");
    const [failure] = (await once(guest.ports.connect(server.port), "error")) as [Error];
    assert.match(failure.message, /see the agent's log/);
    assert.equal(readdirSync(`/proc/${agent.pid}/fd`).length, open);
    await isSurvived("call_failed", "new FdWatch");
  });

  test("a kept command ends if its output buffer cannot be allocated", async () => {
    using stream = new ExecStream(agent);
    arm("ring");
    const keep = { name: "large", bufferBytes: 8_000_000 };
    const seconds = `61${process.pid}`;
    stream.start({ args: ["sleep", seconds], keep });
    await assert.rejects(stream.until("never"), /out of memory for a buffer of 8000000 bytes/);
    assert.deepEqual(await processesWith(`sleep\0${seconds}\0`), []);
  });

  for (const [entry, act] of [
    ["setTimeout", () => exec(agent, { args: ["sleep", "1000"], timeoutMs: 1_000n })],
    ["setImmediate", () => exec(agent, { args: ["echo", "hello"], terminal: { cols: 80, rows: 24 } })],
    ["FdWatch", () => exec(agent, { args: ["echo", "hello"] })],
    ["spawn", () => exec(agent, { args: ["true"] })],
  ] as const) {
    test(`the agent survives a bug in a ${entry} callback`, async () => {
      arm(entry);
      await act();
      await isSurvived("internal_error", entry);
    });
  }

  test("the agent survives an exception while it handles the end of a process", async () => {
    using stream = new ExecStream(agent);
    await stream
      .start({ args: ["cat"], stdin: true })
      .stdin("up")
      .until("up");
    arm("peekEnd");
    stream.end();
    await agent.logged("internal_error", ({ error }) => String(error).includes("injected into peekEnd"));
    await isSurvived("internal_error", "peekEnd");
    assert.equal((await stream.outcome()).exit.code, 0);
  });

  test("an agent with recurring internal errors exits with 70", async () => {
    await using other = await start("other");
    arm("storm", "other");
    using guest = clientOf(other);
    await guest.health().catch(() => undefined);
    assert.deepEqual(await other.exited, { code: 70, signal: null });
  });
});
