import assert from "node:assert/strict";
import { test } from "node:test";
import { discard, processes, request } from "../../../fixtures/spawning.ts";

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
