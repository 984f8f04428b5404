import assert from "node:assert/strict";
import { closeSync, readSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import type { StdioPlan } from "../../../../src/agent/domain/index.ts";
import { FdSink } from "../../../../src/agent/platform/streams/sink.ts";
import { addon, bytes, launch, processes, request, run, shell } from "../../../fixtures/spawning.ts";

const PIPES: StdioPlan = { kind: "pipes", stdin: true };
const TERMINAL: StdioPlan = { kind: "terminal", cols: 80, rows: 24 };

test("a large input arrives whole and in order", async () => {
  const input = Buffer.from(Uint32Array.from({ length: 500_000 }, (_, i) => i).buffer);
  const { stdout } = await run(request(["/bin/cat"], { stdio: PIPES }), input);
  assert.ok(stdout.equals(input));
});

test("a write resolves when the reader closed its end, and when the sink is closed", async () => {
  await using running = await launch(shell("exec 0<&-; echo closed; sleep 1020", { stdio: PIPES }));
  await running.stdout.until(/closed/);
  await running.child.stdin?.write(Buffer.alloc(1_000_000));
  await running.child.stdin?.write(bytes("more"));

  await using deaf = await launch(request(["/bin/sleep", "1021"], { stdio: PIPES }));
  const write = deaf.child.stdin?.write(Buffer.alloc(1_000_000));
  deaf.child.stdin?.close();
  await write;
});

test("a pending write is dropped when its reader dies", async () => {
  const child = await processes.spawn(request(["/bin/sleep", "1022"], { stdio: PIPES }));
  const write = child.stdin?.write(Buffer.alloc(1_000_000));
  child.signal(9);
  await write;
  await child.ended;
  child.release();
});

test("after the end nothing more is written", async () => {
  await using running = await launch(request(["/bin/cat"], { stdio: PIPES }));
  running.child.stdin?.end();
  await running.child.stdin?.write(bytes("late"));
  await running.child.ended;
  assert.equal(await running.child.stdout?.drain(), true);
  assert.equal(running.stdout.text, "");
});

for (const [name, stdio] of [
  ["pipes", PIPES],
  ["a terminal", TERMINAL],
] as const)
  test(`on ${name}, a child that does not read costs no processor time`, async () => {
    const child = await processes.spawn(request(["/bin/sleep", "1023"], { stdio }));
    child.stdout?.start({ chunk: (_, release) => release(), end: () => {} });
    const write = child.stdin?.write(Buffer.alloc(1_000_000, "x"));
    const cpu = process.cpuUsage();
    const start = performance.now();
    await delay(500);
    const { user, system } = process.cpuUsage(cpu);
    const share = (user + system) / 1000 / (performance.now() - start);
    assert.ok(share < 0.5, `${share} of a processor`);
    child.signal(9);
    await child.ended;
    child.release();
    await write;
  });

test("the end of input in a terminal is seen after a whole line, in the middle of one, and before any", async () => {
  for (const input of ["line\n", "no newline", ""]) {
    await using running = await launch(shell("stty -echo; echo ready; cat; echo done", { stdio: TERMINAL }));
    await running.stdout.until(/ready/);
    await running.child.stdin?.write(bytes(input));
    running.child.stdin?.end();
    await running.stdout.until(/done/);
    assert.equal(running.stdout.text.replaceAll("\r", ""), `ready\n${input}done\n`);
    await running.child.ended;
  }
});

test("nothing is typed for the end of input into a terminal in raw mode", async () => {
  const terminal = addon.openTerminal(80, 24);
  assert.ok(typeof terminal === "object");
  const [master, slave] = terminal;
  const ready = await run(request(["/bin/stty", "raw", "-echo", "-F", `/proc/${process.pid}/fd/${slave}`]));
  assert.equal(ready.stderr.toString(), "");
  const sink = new FdSink(addon, "terminal", addon.duplicate(master));
  await sink.write(bytes("a"));
  sink.end();
  addon.write(master, bytes("b"), 0, 1);
  const typed = Buffer.alloc(2);
  for (let at = 0; at < 2;) at += readSync(slave, typed, at, 2 - at, null);
  assert.equal(typed.toString(), "ab");
  sink.close();
  closeSync(master);
  closeSync(slave);
});
