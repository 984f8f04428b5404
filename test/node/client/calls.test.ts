import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { describe, test } from "node:test";
import {
  type CallOptions,
  type GuestReadStream,
  type GuestClient,
  isTransient,
} from "../../../src/node/client/index.ts";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { UsageService } from "../../../src/shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { type Answer, type StandIn, startStandIn } from "../../fixtures/stand-in-agent.ts";
import { failureOf } from "../../fixtures/guest-client.ts";

/** A source that gives a part and then stalls; resolves when it is closed. */
function stalledSource(): { source: AsyncIterable<Uint8Array>; closed: Promise<void> } {
  const { promise, resolve } = Promise.withResolvers<void>();
  let given = false;
  const source = {
    [Symbol.asyncIterator]: () => ({
      next: () => {
        if (given) return new Promise<IteratorResult<Uint8Array>>(() => {});
        given = true;
        return Promise.resolve({ done: false as const, value: Buffer.from("a part") });
      },
      return: () => {
        resolve();
        return Promise.resolve({ done: true as const, value: undefined });
      },
    }),
  };
  return { source, closed: promise };
}

/** Every operation, on a server that accepts calls and never ends them. */
const OPERATIONS: Readonly<Record<string, (client: GuestClient, options: CallOptions) => Promise<unknown>>> = {
  Health: (client, options) => client.health(options),
  StatPath: (client, options) => client.files.stat("/x", options),
  RunHook: (client, options) => client.snapshots.prepare({ ...options }),
  RunRestoreDuties: (client, options) => client.snapshots.duties({ entropy: new Uint8Array(32), ...options }),
  Exec: (client, options) => client.run(["true"], { input: "input", ...options }),
  ReadFile: (client, options) => client.files.createReadStream("/x", options)[Symbol.asyncIterator]().next(),
  "ReadFile as a stream": (client, options) => client.files.createReadStream("/x", options).web.getReader().read(),
  WriteFile: (client, options) => client.files.writeFile("/x", stalledSource().source, options),
};

describe("aborting", () => {
  for (const [name, operate] of Object.entries(OPERATIONS)) {
    const method = name.split(" ")[0] ?? name;

    test(`${name} rejects with an aborted signal's reason as cause`, async () => {
      await using agent = await startStandIn({ service: GuestAgent });
      const error = await failureOf(operate(agent.client, { signal: AbortSignal.abort("early") }));
      assert.deepEqual([error.status, error.code, error.cause], ["CANCELLED", "ABORT_ERR", "early"]);
      assert.deepEqual(agent.calls, []);
    });

    test(`${name} aborted immediately leaves no call at the agent`, async () => {
      await using agent = await startStandIn({ service: GuestAgent });
      // On an open connection grpc-js makes the call at once.
      await failureOf(agent.client.snapshots.hook("post-restore", { requestTimeoutMs: 100 }));
      const controller = new AbortController();
      const failure = failureOf(operate(agent.client, { signal: controller.signal }));
      controller.abort("at once");
      assert.deepEqual([(await failure).status, (await failure).cause], ["CANCELLED", "at once"]);
      // Calls of a connection arrive in order: had the operation been called, it would be here before this one.
      await failureOf(agent.client.snapshots.prepare({ requestTimeoutMs: 100 }));
      await agent.idle();
    });

    test(`${name} aborted in progress ends the agent's call`, async () => {
      await using agent = await startStandIn({ service: GuestAgent });
      const controller = new AbortController();
      const failure = failureOf(operate(agent.client, { signal: controller.signal }));
      await agent.called(method);
      controller.abort("late");
      const error = await failure;
      assert.deepEqual([error.status, error.cause], ["CANCELLED", "late"]);
      await agent.cancelled(method);
    });
  }

  test("aborting writeFile() closes its source, even while the source is stalled", async () => {
    await using agent = await startStandIn({ service: GuestAgent });
    const { source, closed } = stalledSource();
    const controller = new AbortController();
    const failure = failureOf(agent.client.files.writeFile("/x", source, { signal: controller.signal }));
    await agent.called("WriteFile");
    controller.abort();
    assert.equal((await failure).status, "CANCELLED");
    await closed;
  });

  /** Starts reading in each of the ways; the returned function leaves in mid-read. */
  const READERS: Readonly<Record<string, (content: GuestReadStream) => () => unknown>> = {
    "a stream of Node that is destroyed": (content) => {
      const stream = content.resume();
      return () => stream.destroy();
    },
    "a web stream that is cancelled": (content) => {
      const reader = content.web.getReader();
      void reader.read().catch(() => undefined);
      return () => reader.cancel();
    },
  };
  for (const [name, read] of Object.entries(READERS)) {
    test(`${name} cancels a ReadFile call that waits for the agent`, async () => {
      await using agent = await startStandIn({ service: GuestAgent });
      const leave = read(agent.client.files.createReadStream("/x"));
      await agent.called("ReadFile");
      await leave();
      await agent.cancelled("ReadFile");
    });
  }

  test("leaving a stream rejects its pending read with STREAM_LEFT", async () => {
    await using agent = await startStandIn({ service: UsageService });
    const watch = agent.client.watchUsage();
    const pending = failureOf(watch.next());
    await agent.called("WatchUsage");
    await watch.return?.();
    const error = await pending;
    assert.deepEqual([error.status, error.code, isTransient(error)], ["CANCELLED", "STREAM_LEFT", false]);
  });

  test("completeRestore() can be aborted during the hook, or before any call", async () => {
    await using agent = await startStandIn({
      service: GuestAgent,
      answers: { Health: () => ({ alive: true }), RunRestoreDuties: () => ({}) },
    });
    const controller = new AbortController();
    const failure = failureOf(agent.client.snapshots.completeRestore({ signal: controller.signal }));
    await agent.called("RunHook");
    controller.abort("enough");
    const error = await failure;
    assert.deepEqual([error.status, error.cause], ["CANCELLED", "enough"]);
    // It reads the guest's clock several times.
    const steps = agent.calls.filter((call, at) => call !== agent.calls[at - 1]);
    assert.deepEqual(steps, ["Health", "RunRestoreDuties", "Health", "RunHook"]);
    const never = await failureOf(agent.client.snapshots.completeRestore({ signal: AbortSignal.abort() }));
    assert.equal(never.status, "CANCELLED");
  });

  test("a finished call removes its abort listener from the caller's signal", async () => {
    await using agent = await startStandIn({
      service: GuestAgent,
      answers: { Health: () => ({ alive: true }) },
      streams: { ReadFile: [{ data: Buffer.from("x") }], Exec: [{ frame: { case: "exit", value: {} } }] },
    });
    const { signal } = new AbortController();
    const listeners = (): number => getEventListeners(signal, "abort").length;
    const health = agent.client.health({ signal });
    assert.equal(listeners(), 1);
    await health;
    await agent.client.run(["true"], { signal });
    for await (const _ of agent.client.files.createReadStream("/x", { signal })) continue;
    await agent.client.health();
    assert.equal(listeners(), 0);
  });
});

/** Answers Health and StatPath only the nth time; breaks the connection before that, and at every other call. */
async function breaking(answersAt: number): Promise<StandIn> {
  const counts = new Map<string, number>();
  const answer =
    (name: string): Answer =>
    () => {
      const count = (counts.get(name) ?? 0) + 1;
      counts.set(name, count);
      if (count >= answersAt) return name === "Health" ? { alive: true } : { size: 5n };
      standIn.drop();
      return new Promise(() => {});
    };
  const broken: Answer = () => {
    standIn.drop();
    return new Promise(() => {});
  };
  const answers = { Health: answer("Health"), StatPath: answer("StatPath"), RunHook: broken, RunRestoreDuties: broken };
  const standIn = await startStandIn({ service: GuestAgent, answers });
  return standIn;
}

describe("retries", () => {
  test("health() and files.stat() are retried when the connection breaks", async () => {
    await using standIn = await breaking(3);
    assert.equal((await standIn.client.health()).alive, true);
    assert.equal((await standIn.client.files.stat("/x")).size, 5);
    assert.deepEqual(standIn.calls, ["Health", "Health", "Health", "StatPath", "StatPath", "StatPath"]);
  });

  test("health() fails after three attempts if the connection breaks each time", async () => {
    await using standIn = await breaking(4);
    assert.equal((await failureOf(standIn.client.health())).status, "UNAVAILABLE");
    assert.equal(standIn.calls.length, 3);
  });

  test("a call is not retried after its deadline", async () => {
    await using standIn = await breaking(4);
    const error = await failureOf(standIn.client.health({ requestTimeoutMs: 40 }));
    assert.ok(["UNAVAILABLE", "DEADLINE_EXCEEDED"].includes(error.status), error.status);
    assert.ok(standIn.calls.length <= 1, standIn.calls.join());
  });

  test("aborting a call that is being retried fails it with CANCELLED", async () => {
    await using standIn = await breaking(4);
    const controller = new AbortController();
    const failure = failureOf(standIn.client.health({ signal: controller.signal }));
    await standIn.called("Health", 2);
    controller.abort("enough");
    const error = await failure;
    assert.deepEqual([error.status, error.cause], ["CANCELLED", "enough"]);
    assert.ok(standIn.calls.length <= 3);
  });

  test("hooks, restore steps, commands, file writes and file reads are never retried", async () => {
    await using standIn = await breaking(1);
    const { client } = standIn;
    for (const act of [
      () => client.snapshots.prepare(),
      () => client.snapshots.duties({ entropy: new Uint8Array(32) }),
    ]) {
      assert.equal((await failureOf(act())).status, "UNAVAILABLE");
    }
    for (const [method, act] of [
      ["Exec", () => client.run(["true"])],
      ["WriteFile", () => client.files.writeFile("/x", Buffer.from("x"))],
      ["ReadFile", () => client.files.createReadStream("/x")[Symbol.asyncIterator]().next()],
    ] as const) {
      const failure = failureOf(act());
      await standIn.called(method);
      standIn.drop();
      assert.equal((await failure).status, "UNAVAILABLE");
    }
    // A later call on the same connection: once it is answered, any further attempt would have come.
    assert.equal((await client.health({ waitForReady: true, requestTimeoutMs: 30_000 })).alive, true);
    const acts = standIn.calls.filter((name) => name !== "Health");
    assert.deepEqual(acts, ["RunHook", "RunRestoreDuties", "Exec", "WriteFile", "ReadFile"]);
  });
});
