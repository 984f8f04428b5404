import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Mutex } from "../../../src/agent/domain/index.ts";

describe("a mutex", () => {
  it("goes on after a task that failed", async () => {
    const mutex = new Mutex();
    await assert.rejects(
      mutex.run(() => Promise.reject(new Error("no"))),
      /no/,
    );
    assert.equal(await mutex.run(() => Promise.resolve(1)), 1);
  });

  it("never runs a task that is given up before its turn, and lets nobody overtake because of it", async () => {
    const mutex = new Mutex();
    const first = Promise.withResolvers<void>();
    const events: string[] = [];
    const running = mutex.run(async () => {
      await first.promise;
      events.push("first");
    });
    const given = new AbortController();
    const second = mutex.run(async () => void events.push("second"), given.signal);
    const third = mutex.run(async () => void events.push("third"));
    given.abort(new Error("client gone"));
    await assert.rejects(second, /client gone/);
    await turn();
    assert.deepEqual(events, []);
    first.resolve();
    await Promise.all([running, third]);
    assert.deepEqual(events, ["first", "third"]);
  });
});
