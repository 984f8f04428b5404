import assert from "node:assert/strict";
import { once } from "node:events";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { connect as dial, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, test } from "node:test";
import { connect, type GuestClient, type GuestError } from "../../../src/node/client/index.ts";
import { testFolder } from "../../fixtures/files.ts";
import { failureOf } from "../../fixtures/guest-errors.ts";
import { FLAG, FRAME, PREFACE } from "../../fixtures/raw-http2.ts";
import { startSocketAgent } from "../../fixtures/socket-agent.ts";

const FRAME_HEAD_BYTES = 9;

/** Calls back with each whole frame of a direction, with its head, however the bytes are split. */
function frames(
  skipBytes: number,
  take: (frame: Buffer, type: number, flags: number) => void,
): (bytes: Buffer) => void {
  let unread: Buffer = Buffer.alloc(0);
  let left = skipBytes;
  return (bytes) => {
    unread = Buffer.concat([unread, bytes]);
    const skipped = Math.min(left, unread.length);
    left -= skipped;
    unread = unread.subarray(skipped);
    while (unread.length >= FRAME_HEAD_BYTES && unread.length >= FRAME_HEAD_BYTES + unread.readUIntBE(0, 3)) {
      const frame = unread.subarray(0, FRAME_HEAD_BYTES + unread.readUIntBE(0, 3));
      unread = unread.subarray(frame.length);
      take(frame, frame[3] ?? 0, frame[4] ?? 0);
    }
  };
}

/**
 * The worst network: a client's reset never arrives, like one that is delayed for longer than the agent needs.
 * `settled` resolves when the client has reset its call, or has ended the request and the agent has answered: after
 * that a slow client sends no reset.
 */
async function withoutResets(socketPath: string, path: string): Promise<{ settled: Promise<void> } & AsyncDisposable> {
  const settled = Promise.withResolvers<void>();
  const server = createServer((near) => {
    const far = dial(socketPath);
    for (const socket of [near, far]) socket.on("error", () => {});
    far.write(PREFACE);
    let requestEnded = false;
    near.on(
      "data",
      frames(PREFACE.length, (frame, type, flags) => {
        if (type === FRAME.data && (flags & FLAG.endStream) !== 0) requestEnded = true;
        if (type !== FRAME.reset) far.write(frame);
        else if (!requestEnded) settled.resolve();
      }),
    );
    far.on(
      "data",
      frames(0, (frame, type, flags) => {
        if (type === FRAME.headers && (flags & FLAG.endStream) !== 0) settled.resolve();
        near.write(frame);
      }),
    );
    near.once("close", () => far.destroy());
    far.once("close", () => near.destroy());
  }).listen(path);
  await once(server, "listening");
  return {
    settled: settled.promise,
    [Symbol.asyncDispose]: async () => {
      server.close();
      await once(server, "close");
    },
  };
}

/** Yields a part of the content. */
async function* part(then: () => Promise<unknown>): AsyncGenerator<Uint8Array> {
  yield Buffer.from("a part of the new content");
  await then();
}

const never = async (): Promise<void> => new Promise(() => {});

/** The ways in which a client ends a write early. */
const ENDS: Readonly<Record<string, (client: GuestClient, path: string) => Promise<GuestError>>> = {
  "is aborted": async (client, path) => {
    const abort = new AbortController();
    const content = part(async () => {
      // Wait until the part has left: unsent bytes cannot count as the whole.
      await sleep(50);
      abort.abort("given up");
      await never();
    });
    return failureOf(client.writeFile(path, content, {}, { signal: abort.signal }));
  },
  "passes its deadline": (client, path) => failureOf(client.writeFile(path, part(never), {}, { deadlineMs: 300 })),
  "has a source that fails": (client, path) => {
    const content = part(async () => {
      await sleep(50);
      throw new Error("the disk of the host is gone");
    });
    return failureOf(client.writeFile(path, content));
  },
};

describe("a part of the content never becomes the file, though Node ends the request before it resets it, when a write", () => {
  for (const [name, end] of Object.entries(ENDS)) {
    test(name, async () => {
      await using agent = await startSocketAgent();
      await using folder = await testFolder();
      await writeFile(folder.at("file"), "the old content");
      await using proxy = await withoutResets(agent.socketPath, `${folder.path}.sock`);
      const client = connect({ address: `unix:${folder.path}.sock`, token: agent.token });
      try {
        assert.match((await end(client, folder.at("file"))).status, /CANCELLED|DEADLINE_EXCEEDED/);
        await proxy.settled;
        assert.equal(await readFile(folder.at("file"), "utf8"), "the old content");
        assert.deepEqual(await readdir(folder.path), ["file"]);
      } finally {
        client.close();
      }
    });
  }
});
