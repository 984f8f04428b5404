import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { after, before, describe, test } from "node:test";
import { connect, type ConnectOptions, type GuestClient, GuestError } from "../../../../src/node/client/index.ts";
import { SERVER_NAME } from "../../../fixtures/certificates.ts";
import { type SocketAgent, startSocketAgent } from "../../../fixtures/socket-agent.ts";

const MEBIBYTE = 1024 * 1024;

const LINKS: Readonly<Record<string, (agent: SocketAgent) => ConnectOptions>> = {
  "TCP with mutual TLS": ({ port, token, certificates: { ca, client } }) => ({
    address: `127.0.0.1:${port}`,
    caPem: ca,
    certPem: client.cert,
    keyPem: client.key,
    serverName: SERVER_NAME,
    token,
  }),
  "a unix socket": ({ socketPath, token }) => ({ address: `unix:${socketPath}`, token }),
  "a unix socket as gRPC also writes it": ({ socketPath, token }) => ({ address: `unix://${socketPath}`, token }),
  "a bridge command": ({ bridge, token }) => ({ bridge, token }),
};

for (const [name, optionsOf] of Object.entries(LINKS)) {
  describe(`a client over ${name}`, () => {
    let agent: SocketAgent;
    let client: GuestClient;
    let folder: string;
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), "transports-"));
      agent = await startSocketAgent({ hooks: { post_restore: { args: ["sh", "-c", "echo restored"] } } });
      client = connect(optionsOf(agent));
    });
    after(async () => {
      client.close();
      await agent[Symbol.asyncDispose]();
      await rm(folder, { recursive: true, force: true });
    });

    test("asks for health, and learns the agent's version", async () => {
      assert.equal((await client.health()).alive, true);
      assert.match(client.agentVersion ?? "", /^\d+\.\d+\.\d+/);
    });

    test("runs commands", async () => {
      const result = await client.run({ args: ["sh", "-c", "cat; echo err >&2; exit 3"] }, Buffer.from("input"));
      assert.deepEqual([result.stdout.toString(), result.stderr.toString(), result.code], ["input", "err\n", 3]);
    });

    // More than all windows and pipes on the way hold; test/transports carries 100 MiB over the same ways.
    test("carries 20 MiB both ways at once", async () => {
      const process = client.exec({ args: ["cat"], stdin: true });
      const [sent, received] = [createHash("sha256"), createHash("sha256")];
      const block = randomBytes(MEBIBYTE);
      function* blocks(): Generator<Buffer> {
        for (let number = 0; number < 20; number++) {
          block.writeUInt32LE(number);
          sent.update(block);
          yield Buffer.from(block);
        }
      }
      let size = 0;
      const copied = pipeline(Readable.from(blocks()), process.stdin);
      for await (const part of process.stdout as AsyncIterable<Buffer>) {
        size += part.length;
        received.update(part);
      }
      await copied;
      assert.deepEqual([size, received.digest("hex")], [20 * MEBIBYTE, sent.digest("hex")]);
      assert.equal((await process.wait()).code, 0);
    });

    test("runs a command in a terminal", async () => {
      const process = client.exec({ args: ["sh", "-c", "stty size"], terminal: { cols: 91, rows: 17 } });
      let seen = "";
      for await (const part of process.stdout as AsyncIterable<Buffer>) seen += part.toString();
      assert.equal(seen, "17 91\r\n");
      assert.equal((await process.wait()).code, 0);
    });

    test("writes, reads and describes files", async () => {
      const path = join(folder, "file");
      const content = randomBytes(3 * MEBIBYTE);
      await client.writeFile(path, content);
      assert.ok((await readFile(path)).equals(content));
      const parts: Uint8Array[] = [];
      for await (const part of client.readFile(path)) parts.push(part);
      assert.ok(Buffer.concat(parts).equals(content));
      assert.equal((await client.statPath(path)).size, content.length);
    });

    test("carries a restore through, dialling anew by itself", async () => {
      // Without host_time the clock of this machine is left alone.
      const { duties, hook, health } = await client.restore({ hostTime: false });
      assert.deepEqual([duties.entropyBytesMixed, duties.clockStepped], [64, false]);
      assert.deepEqual([hook.ran, hook.stdoutTail, health.alive], [true, "restored\n", true]);
      assert.equal((await client.health()).alive, true);
    });

    test("is refused with a wrong token", async () => {
      const stranger = connect({ ...optionsOf(agent), token: "wrong" });
      try {
        await assert.rejects(stranger.health(), (error) => {
          assert.ok(error instanceof GuestError);
          assert.match(error.nextStep ?? "", /token of this very instance/);
          return error.status === "UNAUTHENTICATED" && error.code === 16;
        });
      } finally {
        stranger.close();
      }
    });
  });
}

describe("connect", () => {
  test("refuses options that describe no agent", () => {
    const token = "t";
    const none = "-----BEGIN CERTIFICATE-----";
    const pem = { caPem: none, certPem: none, keyPem: none };
    for (const [options, message] of [
      [{ address: "http://localhost:1", token, ...pem }, /write host:port/],
      [{ address: "::1:7071", token, ...pem }, /IPv6 address in brackets/],
      [{ address: "127.0.0.1:1", token, ...pem, keyPem: "" }, /keyPem holds no PEM/],
      [{ address: "127.0.0.1:1", token, ...pem }, /cannot be read/],
      [{ address: "127.0.0.1:1", token }, /needs caPem, certPem and keyPem/],
      [{ bridge: [], token }, /name the command/],
    ] as const) {
      assert.throws(
        () => connect(options),
        (error) => error instanceof GuestError && error.status === "INVALID_ARGUMENT" && message.test(error.message),
      );
    }
  });
});

test("an address of a unix socket with a host's name, or without a path from the root, is refused", () => {
  for (const address of ["unix://host/path", "unix:path", "unix:", "unix:/", "unix://"]) {
    assert.throws(
      () => connect({ address, token: "x" }),
      (error: Error) => error.message.includes(`"${address}" is not unix:/path`),
      address,
    );
  }
});
