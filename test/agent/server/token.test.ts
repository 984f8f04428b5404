import assert from "node:assert/strict";
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { mkdtempDisposable, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type SocketAgent, startAgent, startSocketAgent } from "../../fixtures/agent.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { NEEDS_ROOT } from "../../fixtures/privileges.ts";
import { LISTENERS } from "../../fixtures/raw-calls.ts";
import { callFields, envelope, FLAG, FRAME, frame, headerBlock, RawHttp2 } from "../../fixtures/raw-http2.ts";
import { managementServices } from "../../fixtures/services.ts";

const served = forAllTests(await startAgent());

/*
 * Nobody who reads the agent's memory, or a snapshot of its guest, finds the instance token. The agent digests what
 * callers send where it reads it, and overwrites it.
 */

const CALLS = 200;
const PIECE_BYTES = 2 ** 20;

/** The writable regions of a process that hold a text, and how often. */
function copies(pid: number, text: string): string[] {
  const wanted = Buffer.from(text);
  const found: string[] = [];
  const memory = openSync(`/proc/${pid}/mem`, "r");
  for (const line of readFileSync(`/proc/${pid}/maps`, "latin1").split("\n")) {
    const region = /^([0-9a-f]+)-([0-9a-f]+) .w.. \S+ \S+ \S+ *(.*)$/.exec(line);
    if (region === null) continue;
    const [start, end] = [Number.parseInt(region[1] ?? "", 16), Number.parseInt(region[2] ?? "", 16)];
    // Pieces overlap, so that no copy is cut in two.
    for (let at = start; at < end; at += PIECE_BYTES) {
      const bytes = Buffer.alloc(Math.min(PIECE_BYTES + wanted.length, end - at));
      let length = 0;
      try {
        length = readSync(memory, bytes, 0, bytes.length, at);
      } catch {
        // Not readable: a guard page, or a device's memory.
      }
      for (let hit = bytes.indexOf(wanted); hit >= 0 && hit < length; hit = bytes.indexOf(wanted, hit + 1)) {
        if (hit < PIECE_BYTES) found.push(`${region[3] ?? ""} at ${(at + hit).toString(16)}`);
      }
    }
  }
  closeSync(memory);
  return found;
}

/** Calls in every way: on one connection and on new ones, by index, as literals, in pieces, with too long a body. */
async function callOften(agent: SocketAgent): Promise<void> {
  using client = clientOf(agent);
  for (let count = 0; count < CALLS; count++) await client.health();
  for (const target of Object.values(LISTENERS)) {
    using peer = await RawHttp2.dial(target(agent));
    for (let count = 0; count < CALLS; count++) assert.equal(await peer.ask("Health", agent.token), "0");
    const block = headerBlock(callFields("Health", agent.token));
    // Within the token, which is last.
    const cut = block.length - 8;
    const stream = 2 * CALLS + 1;
    peer.send(frame(FRAME.headers, 0, stream, block.subarray(0, cut)));
    peer.send(frame(FRAME.continuation, FLAG.endHeaders, stream, block.subarray(cut)));
    peer.send(frame(FRAME.data, FLAG.endStream, stream, envelope()));
    assert.equal((await peer.status(stream)).get("grpc-status"), "0");
    const whole = frame(FRAME.headers, FLAG.endHeaders, stream + 2, block);
    for (const byte of whole) {
      peer.send(Buffer.of(byte));
      await peer.flushed();
    }
    // One read of much more than a record, in which the next call is followed by a message.
    const body = frame(FRAME.data, 0, stream + 2, Buffer.alloc(16_000));
    const end = frame(FRAME.data, FLAG.endStream, stream + 4, envelope());
    peer.send(body, frame(FRAME.headers, FLAG.endHeaders, stream + 4, block), body, body, end);
    await peer.next(({ stream: of }) => of === stream + 4);
    for (let count = 0; count < 10; count++) {
      using newcomer = await RawHttp2.dial(target(agent));
      assert.equal(await newcomer.ask("Health", agent.token), "0");
    }
  }
}

/** The ways to give an agent its token, beside the test's own directory. */
const SOURCES: Readonly<Record<string, (token: string, file: string) => NodeJS.ProcessEnv>> = {
  "a file": (_, file) => ({ SVC_INSTANCE_TOKEN: undefined, SVC_INSTANCE_TOKEN_FILE: file }),
  "a variable": (token) => ({ SVC_INSTANCE_TOKEN: token }),
};

describe("the agent's memory", () => {
  for (const [source, env] of Object.entries(SOURCES)) {
    test(`the agent's memory holds no copy of a token from ${source}`, NEEDS_ROOT, async () => {
      const token = "hunted-token-0123456789abcdef";
      await using directory = await mkdtempDisposable(join(tmpdir(), "token-"));
      const file = join(directory.path, "token");
      await writeFile(file, `${token}\n`);
      await using started = await startSocketAgent({ env: env(token, file) });
      const agent = { ...started, token, pid: started.pid };
      await callOften(agent);
      // There Node hands decrypted bytes on through a buffer, where the next ones lie over them. Without the launcher,
      // which empties it, the kernel leaves the environment.
      const lasting = copies(agent.pid, token).filter((place) => !place.startsWith("[stack]"));
      assert.deepEqual(lasting, []);
    });
  }
});

const UNAUTHENTICATED = "16";

describe("the token of every management method", () => {
  for (const isKnown of [false, true]) {
    test(`every management method requires the token after ${isKnown ? "a" : "no"} authenticated call`, async () => {
      using peer = await RawHttp2.dial(served);
      if (isKnown) assert.equal(await peer.ask("Health", served.token), "0");
      for (const { typeName, methods } of await managementServices()) {
        for (const { name } of methods) {
          assert.equal(await peer.ask(`${typeName}/${name}`, "wrong-token-0123456789"), UNAUTHENTICATED, name);
        }
      }
    });
  }
});
