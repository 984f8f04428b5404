import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { type GuestClient, GuestError, isTransient } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { relayTo } from "../../fixtures/relay.ts";

const SANDBOXES = 20;
const JOBS = 200;

/** As a user writes it: jobs go to the next sandbox that is healthy, and lost ones to another. */
class Pool {
  readonly #sandboxes: readonly GuestClient[];
  #next = 0;

  constructor(sandboxes: readonly GuestClient[]) {
    this.#sandboxes = sandboxes;
  }

  async run(args: readonly string[], input: string): Promise<string> {
    for (let tries = 0; tries < this.#sandboxes.length; tries++) {
      const sandbox = this.#sandboxes[this.#next++ % this.#sandboxes.length];
      try {
        const { alive } = (await sandbox?.health()) ?? { alive: false };
        if (sandbox !== undefined && alive) return (await sandbox.run(args, { input, check: true })).stdout;
      } catch (error) {
        // These jobs may run twice. Another pool would check `retryable` alone.
        if (!(error instanceof GuestError) || !(error.retryable || isTransient(error))) throw error;
      }
    }
    throw new Error("no sandbox is healthy");
  }
}

test("a pool of 20 sandboxes loses no job when two sandboxes stop", async () => {
  await using stack = new AsyncDisposableStack();
  const agents = await Promise.all(Array.from({ length: SANDBOXES }, () => startAgent()));
  for (const agent of agents) stack.use(agent);
  const clients = agents.map((agent) => stack.use(clientOf(agent)));
  const pool = new Pool(clients);
  const [first, second] = agents;
  const [back] = clients;
  assert.ok(first && second && back);
  let done = 0;
  const stopped = Promise.withResolvers<void>();
  const job = async (number: number): Promise<string> => {
    const result = await pool.run(["sh", "-c", "sleep 0.1; tr a-z A-Z"], `job ${number}`);
    // One sandbox is stopped and one crashes while jobs run in all of them.
    if (++done === SANDBOXES) {
      process.kill(second.pid, "SIGKILL");
      first.stop().then(() => stopped.resolve(), stopped.reject);
    }
    return result;
  };
  const results = await Promise.all(Array.from({ length: JOBS }, (_, number) => job(number)));
  assert.deepEqual(
    results,
    Array.from({ length: JOBS }, (_, number) => `JOB ${number}`),
  );
  await stopped.promise;

  // A sandbox returns at the same address, as after a restore: the same client reaches it again.
  await assert.rejects(back.health(), (error: unknown) => isTransient(error));
  stack.use(await startAgent({ certificates: first.certificates, env: { SVC_GUEST_PORT: String(first.port) } }));
  assert.equal((await back.health({ waitForReady: true, requestTimeoutMs: 60_000 })).alive, true);
});

/** What a caller knows of a job: it has succeeded, or an error said that it may have run. */
type Outcome = "done" | "interrupted";

/**
 * Runs jobs as a caller does that repeats exactly the errors with `retryable`, each time with the next client. Every
 * job appends a byte to a file of its own name, which counts its runs.
 */
class Repeating {
  /** Errors with `retryable`, by their code. */
  readonly repeated: Map<string, number> = new Map();
  readonly #clients: readonly GuestClient[];
  #next = 0;

  constructor(clients: readonly GuestClient[]) {
    this.#clients = clients;
  }

  async run(counter: string): Promise<Outcome> {
    for (;;) {
      const client = this.#clients[this.#next++ % this.#clients.length];
      assert.ok(client);
      try {
        await client.run(["sh", "-c", 'printf x >>"$1"; sleep 0.05', "job", counter], { check: true });
        return "done";
      } catch (error) {
        if (!(error instanceof GuestError) || !error.retryable) return "interrupted";
        this.repeated.set(error.code, (this.repeated.get(error.code) ?? 0) + 1);
        // The agent may be starting just now.
        await pause(50);
      }
    }
  }
}

for (const [what, disturb] of [
  ["its connections are cut", "cut"],
  ["its agent restarts", "restart"],
] as const)
  test(`a client that repeats retryable errors runs no job twice while ${what}`, async (t) => {
    await using directory = await testDirectory();
    await using stack = new AsyncDisposableStack();
    const agent = stack.use(await startAgent());
    const relay = stack.use(await relayTo(agent.port));
    const clients = Array.from({ length: SANDBOXES }, () => stack.use(clientOf({ ...agent, port: relay.port })));
    const jobs = new Repeating(clients);
    const results = new Map<string, Outcome>();
    let disturbing: Promise<void> | undefined;
    const disturbance = async (): Promise<void> => {
      if (disturb === "cut") {
        relay.cut();
        // As long as new connections are refused, jobs are repeated.
        while (jobs.repeated.size === 0) await pause(10);
        relay.mend();
        return;
      }
      await agent.stop();
      const again = { certificates: agent.certificates, env: { SVC_GUEST_PORT: String(agent.port) } };
      stack.use(await startAgent(again));
    };
    // Each of the workers takes the next job when its last one has ended.
    let number = 0;
    const worker = async (): Promise<void> => {
      while (number < JOBS) {
        const name = `job-${number++}`;
        results.set(name, await jobs.run(directory.at(name)));
        if (results.size === 2 * SANDBOXES) disturbing = disturbance();
      }
    };
    await Promise.all(Array.from({ length: 2 * SANDBOXES }, worker));
    await disturbing;

    const runs = new Map<string, number>();
    for (const name of await readdir(directory.path)) runs.set(name, (await readFile(directory.at(name))).length);
    const outcomes = [...results.values()];
    const interrupted = outcomes.filter((outcome) => outcome === "interrupted").length;
    t.diagnostic(`${interrupted} interrupted; repeated: ${JSON.stringify([...jobs.repeated])}`);
    assert.deepEqual(
      [...results].filter(
        ([name, outcome]) => (runs.get(name) ?? 0) !== (outcome === "done" ? 1 : (runs.get(name) ?? 0)),
      ),
      [],
      "each job that succeeded has run once",
    );
    assert.ok(Math.max(...runs.values()) === 1, "no job has run twice");
    assert.equal(results.size, JOBS);
    assert.ok(jobs.repeated.size > 0, "some jobs were repeated");
    assert.ok(interrupted < JOBS / 2, `${interrupted} jobs were interrupted`);
  });
