import assert from "node:assert/strict";
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { FileType, type GuestClient, HookKind } from "../../src/node/client/index.ts";
import { failureOf } from "../fixtures/guest-errors.ts";
import { noProcessWith, processGone } from "../fixtures/processes.ts";

const MEBIBYTE = 1024 * 1024;
const FILE_BYTES = 8 * MEBIBYTE;
/** More than a tunnel's windows hold. */
const TUNNEL_PIECES = 64;
const TUNNEL_PIECE_BYTES = 64 * 1024;
/** Name of an echo socket in the cases' folder. */
export const ECHO_SOCKET = "echo.sock";

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

/** Something that must work over every transport. */
export interface Case {
  readonly title: string;
  readonly run: (context: CaseContext) => Promise<void>;
}

/** Configuration of the suite's agent. */
export const SUITE_HOOKS = { preSnapshot: { args: ["sh", "-c", "echo at rest; echo a word >&2; exit 3"] } } as const;

/** Run in this order over one connection; the duties come last because they end it. */
export const CASES: readonly Case[] = [
  {
    title: "asks for Health",
    run: async ({ client }) => {
      const health = await client.health();
      assert.deepEqual([health.alive, health.ready], [true, true]);
      assert.ok(health.guestTime !== undefined && health.lastUserActivity !== undefined);
    },
  },
  {
    title: "runs a command with input, its end, output, errors and exit code",
    run: async ({ client }) => {
      const command = client.exec({ args: ["sh", "-c", "tr a-z A-Z; echo careful >&2; exit 3"], stdin: true });
      command.stdin.write("hello ");
      command.stdin.end("sandbox");
      const [stdout, stderr, exit] = await Promise.all([
        buffer(command.stdout),
        buffer(command.stderr),
        command.wait(),
      ]);
      assert.deepEqual([stdout.toString(), stderr.toString()], ["HELLO SANDBOX", "careful\n"]);
      assert.deepEqual([exit.exitCode, exit.signal, exit.outputComplete], [3, 0, true]);
    },
  },
  {
    title: "runs a command in a terminal whose size follows",
    run: async ({ client }) => {
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
  },
  {
    title: "sends a signal to a command",
    run: async ({ client }) => {
      const script = "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done";
      const command = client.exec({ args: ["sh", "-c", script] });
      const output = textOf(command.stdout);
      await output.until("ready");
      command.signal("SIGUSR1");
      await output.until("caught");
      assert.equal((await command.wait()).exitCode, 7);
    },
  },
  {
    title: "writes and reads a file of 8 MiB",
    run: async ({ client, folder }) => {
      const path = join(folder, "deep", randomUUID());
      const content = randomBytes(FILE_BYTES);
      const sha256 = digest(content);
      const written = await client.writeFile(path, content, { mode: 0o640, sha256, parents: true });
      assert.equal(written.bytesWritten, FILE_BYTES);
      assert.deepEqual(Buffer.from(written.sha256), sha256);
      const chunks: Uint8Array[] = [];
      for await (const chunk of client.readFile(path)) chunks.push(chunk);
      assert.deepEqual(digest(Buffer.concat(chunks)), sha256);
    },
  },
  {
    title: "asks for the attributes of a file",
    run: async ({ client, folder }) => {
      const path = join(folder, randomUUID());
      await client.writeFile(path, Buffer.from("twelve bytes"), { mode: 0o604 });
      const { type, size, mode, mtime } = await client.statPath(path);
      assert.deepEqual([type, size, mode], [FileType.REGULAR, 12, 0o604]);
      assert.ok(mtime !== undefined);
    },
  },
  {
    title: "makes, lists and removes a folder, and renames what is in it",
    run: async ({ client, folder }) => {
      const path = join(folder, randomUUID());
      await client.mkdir(path);
      await client.writeFile(join(path, "before"), Buffer.from("content"));
      await client.rename(join(path, "before"), join(path, "after"));
      const entries = await Array.fromAsync(client.list(path));
      assert.deepEqual(
        entries.map(({ name, type }) => [name, type]),
        [["after", FileType.REGULAR]],
      );
      assert.equal((await client.remove(path, { recursive: true })).removed, 2);
      const gone = await failureOf(Array.fromAsync(client.list(path)));
      assert.deepEqual([gone.status, gone.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
    },
  },
  {
    title: "gets back through a tunnel what it sends, and the end after its own",
    run: async ({ client, folder }) => {
      const tunnel = client.openTunnel(join(folder, ECHO_SOCKET));
      const sent = Array.from({ length: TUNNEL_PIECES }, () => randomBytes(TUNNEL_PIECE_BYTES));
      for (const piece of sent) tunnel.write(piece);
      tunnel.end();
      assert.deepEqual(digest(await buffer(tunnel)), digest(Buffer.concat(sent)));
      const nowhere = await failureOf(buffer(client.openTunnel(join(folder, "no.sock"))));
      assert.deepEqual([nowhere.status, nowhere.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
    },
  },
  {
    title: "runs a hook, and is told where none is configured",
    run: async ({ client }) => {
      const { ran, timedOut, exitCode, stdoutTail, stderrTail } = await client.runHook({ kind: HookKind.PRE_SNAPSHOT });
      assert.deepEqual([ran, timedOut, exitCode, stdoutTail, stderrTail], [true, false, 3, "at rest\n", "a word\n"]);
      assert.equal((await client.runHook({ kind: HookKind.POST_RESTORE })).ran, false);
    },
  },
  {
    title: "is told why a call failed: status, reason and metadata",
    run: async ({ client, folder }) => {
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
      const sha256 = digest(Buffer.from("else"));
      const corrupt = await failureOf(client.writeFile(join(folder, "f"), Buffer.from("this"), { sha256 }));
      assert.deepEqual([corrupt.status, corrupt.reason], ["DATA_LOSS", "CHECKSUM_MISMATCH"]);
    },
  },
  {
    title: "is refused with another token",
    run: async ({ dialAgain }) => {
      const stranger = dialAgain("not-the-token-0123456789");
      const { status, reason } = await failureOf(stranger.health());
      assert.deepEqual([status, reason], ["UNAUTHENTICATED", "UNAUTHENTICATED"]);
    },
  },
  {
    title: "gives a command up, which ends it",
    run: async ({ client }) => {
      const abort = new AbortController();
      const command = client.exec({ args: ["sleep", "1000"] }, { signal: abort.signal });
      const pid = await command.started;
      const cancelled = failureOf(command.wait());
      abort.abort();
      assert.equal((await cancelled).status, "CANCELLED");
      await processGone(pid);
      assert.equal((await client.health()).alive, true);
    },
  },
  {
    title: "gives a command up at the call's deadline",
    run: async ({ client }) => {
      // An argument that marks the command: its process id may remain unknown.
      const seconds = `1000.${Date.now()}${process.pid}`;
      const command = client.exec({ args: ["sleep", seconds] }, { timeoutMs: 500 });
      assert.equal((await failureOf(command.wait())).status, "DEADLINE_EXCEEDED");
      await noProcessWith(seconds);
      assert.equal((await client.health()).alive, true);
    },
  },
  {
    title: "gets many MiB back from a command that copies them",
    run: async ({ client, bulkBytes }) => {
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
  },
  {
    title: "has the restore duties performed, which end its connection, and dials again",
    run: async ({ client, dialAgain }) => {
      const duties = await client.runRestoreDuties({ entropy: randomBytes(64) });
      assert.deepEqual([duties.entropyBytesMixed, duties.clockStepped], [64, false]);
      assert.equal(duties.degraded === "", duties.entropyCredited);
      const again = dialAgain();
      assert.equal((await again.health()).alive, true);
      const refused = await failureOf(again.runRestoreDuties({ entropy: new Uint8Array() }));
      assert.deepEqual([refused.status, refused.reason], ["INVALID_ARGUMENT", "INVALID_FIELD"]);
    },
  },
];

function digest(bytes: Uint8Array): Buffer {
  return createHash("sha256").update(bytes).digest();
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
