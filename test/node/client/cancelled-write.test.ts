import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { connect as dial } from "node:net";
import { describe, test } from "node:test";
import { connect, type GuestClient, type GuestError } from "../../../src/node/client/index.ts";
import { testFolder } from "../../fixtures/files.ts";
import { failureOf } from "../../fixtures/guest-client.ts";
import { listener } from "../../fixtures/listeners.ts";
import { FLAG, FRAME, frameReader, PREFACE } from "../../fixtures/raw-http2.ts";
import { startSocketAgent } from "../../fixtures/agent.ts";

/**
 * The worst network: a client's reset never arrives, like one that is delayed for longer than the agent needs.
 * `settled` resolves when the client has reset its call, or has ended the request and the agent has answered. After
 * that, a client that had little time sends no reset. `given` resolves when the part has left the client: what is not
 * sent cannot be taken for the whole.
 */
async function withoutResets(socketPath: string, path: string) {
  const settled = Promise.withResolvers<void>();
  const given = Promise.withResolvers<void>();
  const server = await listener(
    (near) => {
      const far = dial(socketPath).on("error", () => {});
      far.write(PREFACE);
      let requestEnded = false;
      const onward = frameReader((frame, type, flags) => {
        if (frame.includes(PART)) given.resolve();
        if (type === FRAME.data && (flags & FLAG.endStream) !== 0) requestEnded = true;
        if (type !== FRAME.reset) far.write(frame);
        else if (!requestEnded) settled.resolve();
      }, PREFACE.length);
      const back = frameReader((frame, type, flags) => {
        if (type === FRAME.headers && (flags & FLAG.endStream) !== 0) settled.resolve();
        near.write(frame);
      });
      near.on("data", onward).once("close", () => far.destroy());
      far.on("data", back).once("close", () => near.destroy());
    },
    { path },
  );
  const [isSettled, isGiven] = [settled.promise, given.promise];
  return { settled: isSettled, given: isGiven, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

const PART = "a part of the new content";

/** Yields a part of the content. */
async function* part(then: () => Promise<unknown>): AsyncGenerator<Uint8Array> {
  yield Buffer.from(PART);
  await then();
}

const never = async (): Promise<void> => new Promise(() => {});

/** The ways in which a client ends a write early. */
const ENDS: Readonly<Record<string, (client: GuestClient, path: string, given: Promise<void>) => Promise<GuestError>>> =
  {
    "is aborted": async (client, path, given) => {
      const abort = new AbortController();
      const content = part(async () => {
        await given;
        abort.abort("given up");
        await never();
      });
      return failureOf(client.writeFile(path, content, { signal: abort.signal }));
    },
    "passes its deadline": (client, path) => failureOf(client.writeFile(path, part(never), { timeoutMs: 300 })),
    "has a source that fails": (client, path, given) => {
      const content = part(async () => {
        await given;
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
        assert.match((await end(client, folder.at("file"), proxy.given)).status, /CANCELLED|DEADLINE_EXCEEDED/);
        await proxy.settled;
        assert.equal(await readFile(folder.at("file"), "utf8"), "the old content");
        assert.deepEqual(await readdir(folder.path), ["file"]);
      } finally {
        client.close();
      }
    });
  }
});
