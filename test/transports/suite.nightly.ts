import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { connect, type GuestClient } from "../../src/node/client/index.ts";
import { HOOKS, OPERATIONS } from "../compatibility/operations.ts";
import { AGENT_COMMAND, type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { testDirectory } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { TRANSPORTS } from "./transports.ts";
import { failureOf } from "../fixtures/guest-client.ts";
import { processGone } from "../fixtures/proc.ts";

const shared = forAllTests(await testDirectory()).path;

/** What a case gets. */
interface CaseContext {
  readonly client: GuestClient;
  /** Another client of the same agent, on a connection of its own. */
  readonly dialAgain: () => GuestClient;
  /** Bytes that a bulk case sends and gets back: whole MiB. */
  readonly bulkBytes: number;
}

/** Beside each operation, what is about the connection itself. The duties come last because they end it. */
const CASES: Readonly<Record<string, (context: CaseContext) => Promise<void>>> = {
  "cancelling a command ends it": async ({ client }) => {
    const abort = new AbortController();
    const command = client.start(["sleep", "1000"], { signal: abort.signal });
    const pid = await command.started;
    const cancelled = failureOf(command.wait());
    abort.abort();
    assert.equal((await cancelled).status, "CANCELLED");
    await processGone(pid);
    assert.equal((await client.health()).alive, true);
  },
  "a command echoes many MiB unchanged": async ({ client, bulkBytes }) => {
    const command = client.start(["cat"], { stdin: true, encoding: "buffer" });
    const sent = randomBytes(bulkBytes);
    command.stdin.end(sent);
    const [exit, received] = await Promise.all([command.wait(), buffer(command.stdout)]);
    assert.equal(exit.exitCode, 0);
    assert.ok(received.equals(sent));
  },
  "restore steps close the connection, and a new one works": async ({ client, dialAgain }) => {
    const duties = await client.snapshots.duties({ entropy: randomBytes(64) });
    assert.deepEqual([duties.entropyBytesMixed, duties.clockStepped], [64, false]);
    assert.equal(duties.degraded === "", duties.entropyCredited);
    const again = dialAgain();
    assert.equal((await again.health()).alive, true);
    const refused = await failureOf(again.snapshots.duties({ entropy: new Uint8Array() }));
    assert.deepEqual([refused.status, refused.reason], ["INVALID_ARGUMENT", "INVALID_FIELD"]);
  },
};

for (const [index, transport] of TRANSPORTS.entries()) {
  describe(`a client over ${transport.name}`, () => {
    const opened = new DisposableStack();
    let dialAgain: () => GuestClient;
    let client: GuestClient;
    let agent: RunningAgent;
    before(async () => {
      const socket = join(shared, `${index}.sock`);
      agent = await startAgent({ env: { SVC_GUEST_SOCKET: socket }, hooks: HOOKS });
      const { options, [Symbol.dispose]: close } = await transport.open({
        agent,
        socket,
        command: AGENT_COMMAND,
        directory: shared,
      });
      if (close !== undefined) opened.defer(close);
      dialAgain = () => opened.adopt(connect(options), (each) => each.close());
      client = dialAgain();
    });
    after(async () => {
      opened.dispose();
      await agent[Symbol.asyncDispose]();
    });
    for (const [method, run] of Object.entries(OPERATIONS)) {
      if (method === "GuestAgent/RunRestoreDuties" || method === "Lifecycle/Stop") continue;
      test(`${method} works over ${transport.name}`, async () =>
        run({ client, agent, directory: await mkdtemp(join(shared, "operation-")) }));
    }
    for (const [title, run] of Object.entries(CASES))
      test(`${title}, over ${transport.name}`, () => run({ client, dialAgain, bulkBytes: transport.bulkBytes }));
  });
}
