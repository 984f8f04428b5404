import assert from "node:assert/strict";
import { test } from "node:test";
import { type GuestClient, GuestError, isTransient } from "../../../src/node/client/index.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

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
