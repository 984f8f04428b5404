import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { connect, type GuestClient, HookKind } from "../../src/node/client/index.ts";
import { HOOKS, OPERATIONS } from "../compatibility/operations.ts";
import { AGENT_COMMAND, type RunningAgent, startAgent } from "../fixtures/agent.ts";
import { testFolder } from "../fixtures/files.ts";
import { forAllTests } from "../fixtures/for-all-tests.ts";
import { TRANSPORTS } from "./transports.ts";
import { failureOf } from "../fixtures/guest-client.ts";
import { noProcessWith, processGone } from "../fixtures/proc.ts";

const shared = forAllTests(await testFolder()).path;

const MEBIBYTE = 1024 * 1024;

/** What a case gets. */
interface CaseContext {
  readonly client: GuestClient;
  /** Another client of the same agent, on a connection of its own, perhaps with another token. */
  readonly dialAgain: (token?: string) => GuestClient;
  /** A folder of the client. */
  readonly folder: string;
  /** Bytes that a bulk case sends and gets back: whole MiB. */
  readonly bulkBytes: number;
}

/** Beside each operation once. Run in this order over one connection; the duties come last because they end it. */
const CASES: Readonly<Record<string, (context: CaseContext) => Promise<void>>> = {
  "runs a command in a terminal whose size follows": async ({ client }) => {
    const command = client.exec({
      args: ["sh", "-c", "test -t 0 && stty size && read line && stty size"],
      terminal: { cols: 100, rows: 30 },
    });
    const output = textOf(command.stdout);
    await output.until("30 100");
    command.resize(120, 40);
    command.stdin.write("go\n");
    await output.until("40 120");
    assert.equal((await command.wait()).exitCode, 0);
  },
  "sends a signal to a command": async ({ client }) => {
    const script = "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done";
    const command = client.exec({ args: ["sh", "-c", script] });
    const output = textOf(command.stdout);
    await output.until("ready");
    command.signal("SIGUSR1");
    await output.until("caught");
    assert.equal((await command.wait()).exitCode, 7);
  },
  "is told why a call failed: status, reason and metadata": async ({ client, folder }) => {
    const command = client.exec({ args: ["no-such-command"] });
    const notFound = await failureOf(command.wait());
    assert.deepEqual([notFound.status, notFound.reason], ["NOT_FOUND", "EXEC_NOT_FOUND"]);
    assert.equal(notFound.metadata["errno"], "ENOENT");
    const path = join(folder, "no", "such", "file");
    const noPath = await failureOf(client.statPath(path));
    assert.deepEqual(
      [noPath.status, noPath.reason, noPath.metadata["path"], noPath.metadata["errno"]],
      ["NOT_FOUND", "PATH_NOT_FOUND", path, "ENOENT"],
    );
    const noFile = await failureOf(Array.fromAsync(client.readFile(path)));
    assert.deepEqual([noFile.status, noFile.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
    // Some clients fail by themselves if a status takes more than 8 KiB.
    const long = join(folder, ...Array.from({ length: 18 }, () => "ü".repeat(110)));
    const noLong = await failureOf(client.statPath(long));
    assert.deepEqual([noLong.status, noLong.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
    const sha256 = createHash("sha256").update("else").digest();
    const corrupt = await failureOf(client.writeFile(join(folder, "f"), Buffer.from("this"), { sha256 }));
    assert.deepEqual([corrupt.status, corrupt.reason], ["DATA_LOSS", "CHECKSUM_MISMATCH"]);
  },
  "is refused with another token": async ({ dialAgain }) => {
    const stranger = dialAgain("not-the-token-0123456789");
    const { status, reason } = await failureOf(stranger.health());
    assert.deepEqual([status, reason], ["UNAUTHENTICATED", "UNAUTHENTICATED"]);
  },
  "gives a command up, which ends it": async ({ client }) => {
    const abort = new AbortController();
    const command = client.exec({ args: ["sleep", "1000"] }, { signal: abort.signal });
    const pid = await command.started;
    const cancelled = failureOf(command.wait());
    abort.abort();
    assert.equal((await cancelled).status, "CANCELLED");
    await processGone(pid);
    assert.equal((await client.health()).alive, true);
  },
  "gives a command up at the call's deadline": async ({ client }) => {
    // An argument that marks the command: its process id may remain unknown.
    const seconds = `1000.${Date.now()}${process.pid}`;
    const command = client.exec({ args: ["sleep", seconds] }, { timeoutMs: 500 });
    assert.equal((await failureOf(command.wait())).status, "DEADLINE_EXCEEDED");
    await noProcessWith(seconds);
    assert.equal((await client.health()).alive, true);
  },
  "gets many MiB back from a command that copies them": async ({ client, bulkBytes }) => {
    const command = client.exec({ args: ["cat"], stdin: true });
    const piece = randomBytes(MEBIBYTE);
    const sent = createHash("sha256");
    const received = createHash("sha256");
    let receivedBytes = 0;
    const send = async (): Promise<void> => {
      for (let at = 0; at < bulkBytes; at += MEBIBYTE) {
        // Pieces differ, so that none can replace another.
        piece.writeUInt32BE(at);
        const bytes = Buffer.from(piece);
        sent.update(bytes);
        if (!command.stdin.write(bytes)) await once(command.stdin, "drain");
      }
      command.stdin.end();
    };
    const receive = async (): Promise<void> => {
      for await (const bytes of command.stdout as AsyncIterable<Buffer>) {
        received.update(bytes);
        receivedBytes += bytes.length;
      }
    };
    const [exit] = await Promise.all([command.wait(), send(), receive()]);
    assert.deepEqual([exit.exitCode, receivedBytes], [0, bulkBytes]);
    assert.equal(received.digest("hex"), sent.digest("hex"));
  },
  "has the restore duties performed, which end its connection, and dials again": async ({ client, dialAgain }) => {
    const duties = await client.runRestoreDuties({ entropy: randomBytes(64) });
    assert.deepEqual([duties.entropyBytesMixed, duties.clockStepped], [64, false]);
    assert.equal(duties.degraded === "", duties.entropyCredited);
    const again = dialAgain();
    assert.equal((await again.health()).alive, true);
    const refused = await failureOf(again.runRestoreDuties({ entropy: new Uint8Array() }));
    assert.deepEqual([refused.status, refused.reason], ["INVALID_ARGUMENT", "INVALID_FIELD"]);
  },
};

for (const [index, transport] of TRANSPORTS.entries()) {
  describe(`over ${transport.name} a client`, () => {
    const opened = new DisposableStack();
    let dialAgain: (token?: string) => GuestClient;
    let client: GuestClient;
    let agent: RunningAgent;
    before(async () => {
      const socket = join(shared, `${index}.sock`);
      agent = await startAgent({ env: { SVC_GUEST_SOCKET: socket }, hooks: HOOKS });
      const { options, [Symbol.dispose]: close } = await transport.open({
        agent,
        socket,
        command: AGENT_COMMAND,
        folder: shared,
      });
      if (close !== undefined) opened.defer(close);
      dialAgain = (token = agent.token) => opened.adopt(connect({ ...options, token }), (each) => each.close());
      client = dialAgain();
    });
    after(async () => {
      opened.dispose();
      await agent[Symbol.asyncDispose]();
    });
    for (const [method, run] of Object.entries(OPERATIONS)) {
      if (method === "GuestAgent/RunRestoreDuties" || method === "Lifecycle/Stop") continue;
      test(method, async () =>
        run({ client, library: { HookKind }, agent, folder: await mkdtemp(join(shared, "operation-")) }),
      );
    }
    for (const [title, run] of Object.entries(CASES))
      test(title, () => run({ client, dialAgain, folder: shared, bulkBytes: transport.bulkBytes }));
  });
}

/** A stream as text, for conversations. */
function textOf(stream: Readable): { until(text: string): Promise<void> } {
  const chunks = stream[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  let seen = "";
  return {
    until: async (text) => {
      while (!seen.includes(text)) {
        const next = await chunks.next();
        if (next.done === true) throw new Error(`ended before "${text}": ${seen}`);
        seen += next.value.toString();
      }
    },
  };
}
