import assert from "node:assert/strict";
import { EventEmitter, on } from "node:events";
import { describe, test } from "node:test";
import type { Sandboxes, WatchEvent } from "../../../src/node/sandboxes/index.ts";
import { DECLARE_IDLE_LINE } from "../../fixtures/declare-idle.ts";
import { NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";
import { it, openNode, partsOf } from "./node.ts";
import { HttpSubstrate, IMAGE } from "./substrate.ts";

/** A watch of a node, and its events. */
class Watch implements AsyncDisposable {
  readonly events: WatchEvent[] = [];
  readonly #emitter = new EventEmitter();
  readonly #abort = new AbortController();
  readonly #ended: Promise<void>;

  constructor(node: Sandboxes) {
    const onEvent = (event: WatchEvent): void => {
      this.events.push(event);
      this.#emitter.emit("event");
    };
    this.#ended = node.watch({ intervalMs: 50, signal: this.#abort.signal, onEvent });
  }

  /** Resolves once that event has come. The test's own time limit bounds it. */
  async told(name: string, event: WatchEvent["event"]): Promise<void> {
    const isTold = (): boolean => this.events.some((each) => each.name === name && each.event === event);
    const told = on(this.#emitter, "event");
    while (!isTold()) await told.next();
    await told.return?.();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await this.#ended;
  }
}

describe("the watch", NEEDS_NAMESPACES, () => {
  test("the watch suspends a sandbox once per idle declaration", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    const workload = { args: ["sh", "-c", `${DECLARE_IDLE_LINE}; exec sleep 100000`] };
    await node.create({ image: IMAGE, name: "sleeps", process: workload, idleAction: "standby" });
    await node.create({ image: IMAGE, name: "stops", process: workload, idleAction: "stop" });
    await node.create({ image: IMAGE, name: "stays", process: workload });
    await using watch = new Watch(node);
    await watch.told("sleeps", "standby");
    await watch.told("stops", "stop");
    const states = (await node.list()).map(({ name, state }) => [name, state]);
    assert.deepEqual(states, [
      ["sleeps", "Standby"],
      ["stops", "Stopped"],
      ["stays", "Running"],
    ]);
    await node.resume("sleeps");
    {
      using client = await node.connect("sleeps");
      const { idleDeclared } = await client.health();
      assert.ok(idleDeclared !== undefined, "the declaration of then is still there");
    }
    // Its user works while the workload declares itself idle: two more looks change nothing.
    const looks = substrate.requests.length;
    const other = await node.create({ image: IMAGE, name: "goes", ttlMs: 1 });
    await watch.told("goes", "remove");
    assert.ok(substrate.requests.length > looks && other.ttlMs === 1);
    assert.equal((await node.get("sleeps")).state, "Running");
    const actions = watch.events.filter(({ event }) => event !== "unreachable" && event !== "reachable");
    assert.deepEqual(actions.map(({ name, event }) => `${name} ${event}`).toSorted(), [
      "goes remove",
      "sleeps standby",
      "stops stop",
    ]);
  });

  it("the watch reports unreachable and reachable sandboxes and survives a daemon restart", async (place) => {
    const { node, substrate } = place;
    await using watch = new Watch(node);
    const process = substrate.machine("box");
    await process.suspend();
    await watch.told("box", "unreachable");
    await substrate.shut();
    await process.continue();
    await substrate.listen();
    await watch.told("box", "reachable");
    const kinds = watch.events.slice(0, 2).map(({ event }) => event);
    assert.deepEqual(kinds, ["unreachable", "reachable"]);
  });

  it("the watch reports nothing about a sandbox that is suspended during the check", async ({ node, substrate }) => {
    const events: WatchEvent[] = [];
    const end = new AbortController();
    let isAsleep = false;
    substrate.interfere = async (request, when) => {
      // The watch asks for the address; when the answer comes, nobody listens there any more.
      if (isAsleep || request !== "GET /instances/{id}" || when === "before") return undefined;
      isAsleep = true;
      await node.standby("box");
      end.abort();
      return undefined;
    };
    await node.watch({ intervalMs: 50, signal: end.signal, onEvent: (event) => events.push(event) });
    assert.deepEqual([isAsleep, events], [true, []]);
  });

  it("an aborted watch ends at once although a sandbox does not answer", async ({ node, substrate }) => {
    const end = new AbortController();
    const events: WatchEvent[] = [];
    const { begun, release } = substrate.hold("GET /instances/{id}");
    const process = substrate.machine("box");
    await process.suspend();
    const watching = node.watch({ intervalMs: 50, signal: end.signal, onEvent: (event) => events.push(event) });
    await begun;
    end.abort();
    release();
    await watching;
    assert.deepEqual(events, [], "a check that was broken off says nothing about the sandbox");
    await process.continue();
  });

  test("a slow suspension does not stop the watch from checking other sandboxes", async () => {
    await using substrate = await HttpSubstrate.start();
    using node = await openNode(partsOf(substrate));
    const workload = { args: ["sh", "-c", `${DECLARE_IDLE_LINE}; exec sleep 100000`] };
    await node.create({ image: IMAGE, name: "slow", process: workload, idleAction: "standby" });
    const { begun, release } = substrate.hold("POST /instances/{id}/standby");
    await using watch = new Watch(node);
    await begun;
    await node.create({ image: IMAGE, name: "goes", ttlMs: 1 });
    await watch.told("goes", "remove");
    release();
    await watch.told("slow", "standby");
  });
});
