import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Late, Mutex, unlessAborted } from "../../../src/agent/domain/index.ts";

describe("a mutex", () => {
  it("runs one task at a time, in the order of the calls", async () => {
    const mutex = new Mutex();
    const events: string[] = [];
    const task = (name: string) => async (): Promise<string> => {
      events.push(`${name} begins`);
      await turn();
      events.push(`${name} ends`);
      return name;
    };
    const results = await Promise.all(["a", "b", "c"].map((name) => mutex.run(task(name))));
    assert.deepEqual(results, ["a", "b", "c"]);
    assert.deepEqual(events, ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
  });

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

  it("refuses a task that is given up already", async () => {
    await assert.rejects(
      new Mutex().run(() => assert.fail("it ran"), AbortSignal.abort(new Error("gone"))),
      /gone/,
    );
  });
});

describe("waiting unless aborted", () => {
  it("gives the promise's value, and its failure", async () => {
    const { signal } = new AbortController();
    assert.equal(await unlessAborted(Promise.resolve(7), signal), 7);
    assert.equal(await unlessAborted(Promise.resolve(8), undefined), 8);
    await assert.rejects(unlessAborted(Promise.reject(new Error("no")), signal), /no/);
  });

  it("gives the signal's reason when that comes first", async () => {
    const controller = new AbortController();
    const waiting = unlessAborted(new Promise(() => {}), controller.signal);
    controller.abort(new Error("gone"));
    await assert.rejects(waiting, /gone/);
  });
});

describe("what is loaded late", () => {
  it("is loaded once by all who ask, and again after a load that failed", async () => {
    let loads = 0;
    const late = new Late(async () => {
      if (++loads === 1) throw new Error("no memory");
      return loads;
    });
    assert.equal(late.begun, undefined);
    const first = await Promise.allSettled([late.get(), late.get()]);
    assert.deepEqual(
      first.map(({ status }) => status),
      ["rejected", "rejected"],
    );
    assert.deepEqual([late.begun, loads], [undefined, 1]);
    assert.deepEqual(await Promise.all([late.get(), late.get()]), [2, 2]);
  });
});
