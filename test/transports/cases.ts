import assert from "node:assert/strict";
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { FileType } from "../../src/shared/gen/svc/guest/v1alpha1/files_pb.ts";
import { HookKind } from "../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { noProcessWith, processGone } from "../fixtures/processes.ts";
import type { Failure, Guest } from "./guest.ts";

const MEBIBYTE = 1024 * 1024;
const FILE_BYTES = 8 * MEBIBYTE;
const SIGUSR1 = 10;
/** More than a tunnel's windows hold. */
const TUNNEL_PIECES = 64;
const TUNNEL_PIECE_BYTES = 64 * 1024;
/** Name of an echo socket in the cases' folder. */
export const ECHO_SOCKET = "echo.sock";

/** What a case gets. */
interface CaseContext {
  readonly guest: Guest;
  /** Another client of the same agent, on a connection of its own, perhaps with another token. */
  readonly dialAgain: (token?: string) => Guest;
  /** A folder of the guest. */
  readonly folder: string;
  /** Bytes that a bulk case sends and gets back: whole MiB. */
  readonly bulkBytes: number;
}

/** Something that must work over every transport with every client. */
export interface Case {
  /** Its column in the table. */
  readonly name: string;
  readonly title: string;
  /** It takes so long that one client for each transport is enough. */
  readonly isBulk?: true;
  readonly run: (context: CaseContext) => Promise<void>;
}

/** Configuration of the suite's agent. */
export const SUITE_HOOKS = { preSnapshot: { args: ["sh", "-c", "echo at rest; echo a word >&2; exit 3"] } } as const;

/** Run in this order over one connection; the duties come last because they end it. */
export const CASES: readonly Case[] = [
  {
    name: "health",
    title: "asks for Health",
    run: async ({ guest }) => {
      const health = await guest.health();
      assert.deepEqual([health.alive, health.ready], [true, true]);
      assert.ok(health.guestTime !== undefined && health.lastUserActivity !== undefined);
    },
  },
  {
    name: "exec",
    title: "runs a command with input, its end, output, errors and exit code",
    run: async ({ guest }) => {
      const command = guest.exec({ args: ["sh", "-c", "tr a-z A-Z; echo careful >&2; exit 3"], stdin: true });
      await command.write(Buffer.from("hello "));
      await command.write(Buffer.from("sandbox"));
      command.end();
      const [stdout, stderr, exit] = await Promise.all([
        buffer(command.stdout),
        buffer(command.stderr),
        command.wait(),
      ]);
      assert.deepEqual([stdout.toString(), stderr.toString()], ["HELLO SANDBOX", "careful\n"]);
      assert.deepEqual([exit.code, exit.signal, exit.outputComplete], [3, 0, true]);
    },
  },
  {
    name: "terminal",
    title: "runs a command in a terminal whose size follows",
    run: async ({ guest }) => {
      const command = guest.exec({
        args: ["sh", "-c", "test -t 0 && stty size && read line && stty size"],
        terminal: { cols: 100, rows: 30 },
      });
      const output = textOf(command.stdout);
      await output.until("30 100");
      command.resize(120, 40);
      await command.write(Buffer.from("go\n"));
      await output.until("40 120");
      assert.equal((await command.wait()).code, 0);
    },
  },
  {
    name: "signal",
    title: "sends a signal to a command",
    run: async ({ guest }) => {
      const script = "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done";
      const command = guest.exec({ args: ["sh", "-c", script] });
      const output = textOf(command.stdout);
      await output.until("ready");
      command.signal(SIGUSR1);
      await output.until("caught");
      assert.equal((await command.wait()).code, 7);
    },
  },
  {
    name: "files",
    title: "writes and reads a file of 8 MiB",
    run: async ({ guest, folder }) => {
      const path = join(folder, "deep", randomUUID());
      const content = randomBytes(FILE_BYTES);
      const sha256 = digest(content);
      const written = await guest.writeFile({ path, mode: 0o640, sha256, createParents: true }, content);
      assert.equal(written.bytesWritten, BigInt(FILE_BYTES));
      assert.deepEqual(Buffer.from(written.sha256), sha256);
      const chunks: Uint8Array[] = [];
      for await (const chunk of guest.readFile(path)) chunks.push(chunk);
      assert.deepEqual(digest(Buffer.concat(chunks)), sha256);
    },
  },
  {
    name: "stat",
    title: "asks for the attributes of a file",
    run: async ({ guest, folder }) => {
      const path = join(folder, randomUUID());
      await guest.writeFile({ path, mode: 0o604 }, Buffer.from("twelve bytes"));
      const { type, size, mode, mtime } = await guest.statPath(path);
      assert.deepEqual([type, Number(size), mode], [FileType.REGULAR, 12, 0o604]);
      assert.ok(mtime !== undefined);
    },
  },
  {
    name: "folders",
    title: "makes, lists and removes a folder, and renames what is in it",
    run: async ({ guest, folder }) => {
      const path = join(folder, randomUUID());
      await guest.makeFolder(path);
      await guest.writeFile({ path: join(path, "before") }, Buffer.from("content"));
      await guest.rename(join(path, "before"), join(path, "after"));
      const entries = await Array.fromAsync(guest.list(path));
      assert.deepEqual(
        entries.map(({ name, type }) => [name, type]),
        [["after", FileType.REGULAR]],
      );
      assert.equal(Number((await guest.remove(path)).removed), 2);
      const gone = await failureOf(guest, Array.fromAsync(guest.list(path)));
      assert.deepEqual([gone.status, gone.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
    },
  },
  {
    name: "tunnel",
    title: "gets back through a tunnel what it sends, and the end after its own",
    run: async ({ guest, folder }) => {
      const tunnel = guest.connect(join(folder, ECHO_SOCKET));
      const sent = Array.from({ length: TUNNEL_PIECES }, () => randomBytes(TUNNEL_PIECE_BYTES));
      for (const piece of sent) tunnel.write(piece);
      tunnel.end();
      assert.deepEqual(digest(await buffer(tunnel.output)), digest(Buffer.concat(sent)));
      const nowhere = await failureOf(guest, buffer(guest.connect(join(folder, "no.sock")).output));
      assert.deepEqual([nowhere.status, nowhere.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
    },
  },
  {
    name: "hook",
    title: "runs a hook, and is told where none is configured",
    run: async ({ guest }) => {
      const { ran, timedOut, exitCode, stdoutTail, stderrTail } = await guest.runHook(HookKind.PRE_SNAPSHOT);
      assert.deepEqual([ran, timedOut, exitCode, stdoutTail, stderrTail], [true, false, 3, "at rest\n", "a word\n"]);
      assert.equal((await guest.runHook(HookKind.POST_RESTORE)).ran, false);
    },
  },
  {
    name: "errors",
    title: "is told why a call failed: status, reason and metadata",
    run: async ({ guest, folder }) => {
      const command = guest.exec({ args: ["no-such-command"] });
      const notFound = await failureOf(guest, command.wait());
      assert.deepEqual([notFound.status, notFound.reason], ["NOT_FOUND", "EXEC_NOT_FOUND"]);
      assert.equal(notFound.metadata["errno"], "ENOENT");
      const path = join(folder, "no", "such", "file");
      const noPath = await failureOf(guest, guest.statPath(path));
      assert.deepEqual(
        [noPath.status, noPath.reason, noPath.metadata["path"], noPath.metadata["errno"]],
        ["NOT_FOUND", "PATH_NOT_FOUND", path, "ENOENT"],
      );
      const noFile = await failureOf(guest, Array.fromAsync(guest.readFile(path)));
      assert.deepEqual([noFile.status, noFile.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
      // Some clients fail by themselves if a status takes more than 8 KiB.
      const long = join(folder, ...Array.from({ length: 18 }, () => "ü".repeat(110)));
      const noLong = await failureOf(guest, guest.statPath(long));
      assert.deepEqual([noLong.status, noLong.reason], ["NOT_FOUND", "PATH_NOT_FOUND"]);
      const sha256 = digest(Buffer.from("else"));
      const corrupt = await failureOf(guest, guest.writeFile({ path: join(folder, "f"), sha256 }, Buffer.from("this")));
      assert.deepEqual([corrupt.status, corrupt.reason], ["DATA_LOSS", "CHECKSUM_MISMATCH"]);
    },
  },
  {
    name: "token",
    title: "is refused with another token",
    run: async ({ dialAgain }) => {
      const stranger = dialAgain("not-the-token-0123456789");
      const { status, reason } = await failureOf(stranger, stranger.health());
      assert.deepEqual([status, reason], ["UNAUTHENTICATED", "UNAUTHENTICATED"]);
    },
  },
  {
    name: "cancel",
    title: "gives a command up, which ends it",
    run: async ({ guest }) => {
      const abort = new AbortController();
      const command = guest.exec({ args: ["sleep", "1000"] }, { signal: abort.signal });
      const pid = await command.started;
      const cancelled = failureOf(guest, command.wait());
      abort.abort();
      assert.equal((await cancelled).status, "CANCELLED");
      await processGone(pid);
      assert.equal((await guest.health()).alive, true);
    },
  },
  {
    name: "deadline",
    title: "gives a command up at the call's deadline",
    run: async ({ guest }) => {
      // An argument that marks the command: its process id may remain unknown.
      const seconds = `1000.${Date.now()}${process.pid}`;
      const command = guest.exec({ args: ["sleep", seconds] }, { timeoutMs: 500 });
      assert.equal((await failureOf(guest, command.wait())).status, "DEADLINE_EXCEEDED");
      await noProcessWith(seconds);
      assert.equal((await guest.health()).alive, true);
    },
  },
  {
    name: "bulk",
    title: "gets many MiB back from a command that copies them",
    isBulk: true,
    run: async ({ guest, bulkBytes }) => {
      const command = guest.exec({ args: ["cat"], stdin: true });
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
          await command.write(bytes);
        }
        command.end();
      };
      const receive = async (): Promise<void> => {
        for await (const bytes of command.stdout) {
          received.update(bytes);
          receivedBytes += bytes.length;
        }
      };
      const [exit] = await Promise.all([command.wait(), send(), receive()]);
      assert.deepEqual([exit.code, receivedBytes], [0, bulkBytes]);
      assert.equal(received.digest("hex"), sent.digest("hex"));
    },
  },
  {
    name: "duties",
    title: "has the restore duties performed, which end its connection, and dials again",
    run: async ({ guest, dialAgain }) => {
      const duties = await guest.runRestoreDuties(randomBytes(64));
      assert.deepEqual([duties.entropyBytesMixed, duties.clockStepped], [64, false]);
      assert.equal(duties.degraded === "", duties.entropyCredited);
      const again = dialAgain();
      assert.equal((await again.health()).alive, true);
      const refused = await failureOf(again, again.runRestoreDuties(new Uint8Array()));
      assert.deepEqual([refused.status, refused.reason], ["INVALID_ARGUMENT", "INVALID_FIELD"]);
    },
  },
];

async function failureOf(guest: Guest, call: Promise<unknown>): Promise<Failure> {
  const outcome = await call.then(
    () => undefined,
    (error: unknown) => guest.failure(error),
  );
  assert.ok(outcome, "the call ended with OK");
  return outcome;
}

function digest(bytes: Uint8Array): Buffer {
  return createHash("sha256").update(bytes).digest();
}

/** A stream as text, for conversations. */
function textOf(stream: AsyncIterable<Uint8Array>): { until(text: string): Promise<void> } {
  const chunks = stream[Symbol.asyncIterator]();
  let seen = "";
  return {
    until: async (text) => {
      while (!seen.includes(text)) {
        const next = await chunks.next();
        if (next.done === true) throw new Error(`ended before "${text}": ${seen}`);
        seen += Buffer.from(next.value).toString();
      }
    },
  };
}
