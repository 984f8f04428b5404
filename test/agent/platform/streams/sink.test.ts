import assert from "node:assert/strict";
import { closeSync, readSync } from "node:fs";
import { test } from "node:test";
import type { StdioPlan } from "../../../../src/agent/domain/index.ts";
import { FdSink } from "../../../../src/agent/platform/streams/sink.ts";
import { addon, bytes, launch, processes, request, run, shell } from "../../../fixtures/spawning.ts";

const PIPES: StdioPlan = { kind: "pipes", stdin: true };

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
