import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, discard, launch, processes, request, run, shell } from "../../../fixtures/spawning.ts";

test("a child sees a terminal of the size asked for on all three streams, as its controlling terminal", async () => {
  const line = "stty size; test -t 0 && test -t 1 && test -t 2 && echo three > /dev/tty";
  const { stdout } = await run(shell(line, { stdio: { kind: "terminal", cols: 123, rows: 45 } }));
  assert.equal(stdout.toString(), "45 123\r\nthree\r\n");
});

test("a resize is seen and announced by SIGWINCH", async () => {
  const line = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done";
  await using running = await launch(shell(line, { stdio: { kind: "terminal", cols: 80, rows: 24 } }));
  await running.stdout.until(/ready/);
  running.child.resize(200, 50);
  await running.stdout.until(/50 200/);
  await running.child.ended;
  running.child.resize(1, 1);
  running.child.release();
  running.child.resize(1, 1);
});

test("the interrupt character interrupts the foreground", async () => {
  await using running = await launch(request(["/bin/cat"], { stdio: { kind: "terminal", cols: 80, rows: 24 } }));
  await running.child.stdin?.write(bytes("typed\n"));
  await running.stdout.until(/typed\r\ntyped\r\n/);
  await running.child.stdin?.write(Uint8Array.of(3));
  assert.equal((await running.child.ended).signal, 2);
});

test("giving the terminal's descriptors back hangs up whoever is left in it", async () => {
  await using running = await launch(shell("echo ready; cat", { stdio: { kind: "terminal", cols: 80, rows: 24 } }));
  await running.stdout.until(/ready/);
  running.child.stdin?.close();
  running.child.stdout?.close();
  assert.equal((await running.child.ended).signal, 1);
});

test("a pipe has no size", async () => {
  await using running = await launch(shell("sleep 1030"));
  running.child.resize(10, 10);
});

test("a flood of output gives one chunk at a time, and everything else has its turn before the next", async () => {
  const child = await processes.spawn(
    request(["/usr/bin/head", "-c", "5000000", "/dev/zero"], { stdio: { kind: "terminal", cols: 80, rows: 24 } }),
  );
  const end = Promise.withResolvers<void>();
  let sizeBytes = 0;
  let chunksTogether = 0;
  let mostTogether = 0;
  child.stdout?.start({
    chunk: (piece, release) => {
      sizeBytes += piece.length;
      mostTogether = Math.max(mostTogether, ++chunksTogether);
      // Runs before any other callback of the event loop does.
      queueMicrotask(() => (chunksTogether = 0));
      release();
    },
    end: () => end.resolve(),
  });
  await child.ended;
  await child.stdout?.drain();
  await end.promise;
  assert.equal(sizeBytes, 5_000_000);
  assert.equal(mostTogether, 1);
  await discard(child);
});
