import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:net";
import { describe, test } from "node:test";
import { type TcpOptions, GuestError } from "../../../src/node/client/index.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { issueCertificates } from "../../fixtures/certificates.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

const agent = forAllTests(await startAgent());

describe("connect", () => {
  async function refusal(options: Partial<TcpOptions>): Promise<GuestError> {
    using client = clientOf(agent, options);
    const error = await client.health({ deadlineMs: 30_000 }).then(
      () => assert.fail("the agent answered"),
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof GuestError);
    return error;
  }

  async function listening(server: Server): Promise<string> {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    return typeof address === "object" ? `127.0.0.1:${address?.port}` : assert.fail("no port");
  }

  test("reaches the agent by mutual TLS and token", async () => {
    using client = clientOf(agent);
    const health = await client.health();
    assert.deepEqual([health.alive, health.ready, health.readyCmdExit], [true, true, 0]);
    assert.ok(health.guestTime && health.lastUserActivity);
    assert.equal(health.idleDeclared, undefined);
  });

  test("does not let a proxy of the environment come between", async (t) => {
    const proxied = process.env["http_proxy"];
    process.env["http_proxy"] = "http://127.0.0.1:1";
    t.after(() => {
      if (proxied === undefined) delete process.env["http_proxy"];
      else process.env["http_proxy"] = proxied;
    });
    using client = clientOf(agent);
    assert.equal((await client.health({ deadlineMs: 30_000 })).alive, true);
  });

  test("refuses an agent of another authority or of another name", async () => {
    const other = await issueCertificates();
    const authority = await refusal({ caPem: other.ca });
    assert.equal(authority.status, "UNAVAILABLE");
    assert.match(authority.message, /certificate/);
    assert.equal(authority.reason, undefined);
    assert.match((await refusal({ serverName: "someone-else" })).message, /altname/);
  });

  test("says what stopped the connection, and nothing around it", async (t) => {
    const nobody = createServer();
    const address = await listening(nobody);
    nobody.close();
    await once(nobody, "close");
    const refused = await refusal({ address });
    assert.deepEqual([refused.status, refused.message], ["UNAVAILABLE", `connect ECONNREFUSED ${address}`]);
    const plain = createServer((socket) => socket.end("no TLS here\n"));
    t.after(() => plain.close());
    assert.equal((await refusal({ address: await listening(plain) })).status, "UNAVAILABLE");
  });

  test("gives a silent peer up at the deadline", async (t) => {
    const silent = createServer();
    t.after(() => silent.close());
    silent.on("connection", (socket) => t.after(() => socket.destroy()));
    using client = clientOf(agent, { address: await listening(silent) });
    await assert.rejects(client.health({ deadlineMs: 300 }), (error) => {
      assert.ok(error instanceof GuestError);
      return error.status === "DEADLINE_EXCEEDED";
    });
  });

  test("waits for an agent that is still to come, where it is asked to", async () => {
    const server = createServer();
    const address = await listening(server);
    server.close();
    await once(server, "close");
    using early = clientOf(agent, { address });
    const answer = early.health({ waitForReady: true, deadlineMs: 30_000 });
    await using late = await startAgent({
      certificates: agent.certificates,
      env: { SVC_GUEST_PORT: address.split(":")[1] },
    });
    assert.equal((await answer).alive, true);
    assert.notEqual(late.pid, agent.pid);
  });

  test("fails calls on a closed client", async () => {
    const client = clientOf(agent);
    client.close();
    await assert.rejects(client.health(), /the client has been closed/);
    await assert.rejects(client.run({ args: ["true"] }), GuestError);
    assert.throws(() => client.exec({ args: ["true"] }), GuestError);
  });

  test("lets calls in progress finish when the client is closed", async () => {
    const client = clientOf(agent);
    const process = client.exec({ args: ["cat"], stdin: true });
    await process.started;
    client.close();
    process.stdin.end("still there");
    process.stdout.resume();
    assert.equal((await process.wait()).code, 0);
  });
});
