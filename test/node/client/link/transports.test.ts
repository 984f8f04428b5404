import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { connect, type ConnectOptions, GuestError } from "../../../../src/node/client/index.ts";
import { SERVER_NAME } from "../../../fixtures/certificates.ts";
import { forAllTests } from "../../../fixtures/for-all-tests.ts";
import { type SocketAgent, startSocketAgent } from "../../../fixtures/agent.ts";

/** What is the library's own on each transport; test/transports shows what all of them carry. */
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

const agent = forAllTests(await startSocketAgent({ hooks: { post_restore: { args: ["sh", "-c", "echo restored"] } } }));

for (const [name, optionsOf] of Object.entries(LINKS)) {
  describe(`a client over ${name}`, () => {
    test("learns the agent's version, and carries a restore through, dialling anew by itself", async () => {
      using client = connect(optionsOf(agent));
      assert.equal((await client.health()).alive, true);
      assert.match(client.agentVersion ?? "", /^\d+\.\d+\.\d+/);
      // Without host_time the clock of this machine is left alone.
      const { duties, hook, health } = await client.restore({ hostTime: false });
      assert.deepEqual([duties.entropyBytesMixed, duties.clockStepped], [64, false]);
      assert.deepEqual([hook.ran, hook.stdoutTail, health.alive], [true, "restored\n", true]);
      assert.equal((await client.health()).alive, true);
    });

    test("is refused with a wrong token", async () => {
      using stranger = connect({ ...optionsOf(agent), token: "wrong" });
      await assert.rejects(stranger.health(), (error) => {
        assert.ok(error instanceof GuestError);
        assert.match(error.nextStep ?? "", /token of this very instance/);
        return error.status === "UNAUTHENTICATED" && error.code === "UNAUTHENTICATED";
      });
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
