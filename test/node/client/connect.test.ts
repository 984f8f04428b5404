import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { connect as connectSocket } from "node:net";
import { freePort } from "../../../scripts/machine/free-port.ts";
import { GuestError, isTransient, type TcpOptions } from "../../../src/node/client/index.ts";
import { until } from "../../fixtures/awake.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { issueCertificates } from "../../fixtures/certificates.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { listener } from "../../fixtures/listeners.ts";
import { relayTo } from "../../fixtures/relay.ts";

const agent = forAllTests(await startAgent());

describe("connect", () => {
  async function refusal(options: Partial<TcpOptions>): Promise<GuestError> {
    using client = clientOf(agent, options);
    return await failureOf(client.health({ requestTimeoutMs: 30_000 }));
  }

  test("`connect` ignores the environment's http_proxy", async (t) => {
    const proxied = process.env["http_proxy"];
    process.env["http_proxy"] = "http://127.0.0.1:1";
    t.after(() => {
      if (proxied === undefined) delete process.env["http_proxy"];
      else process.env["http_proxy"] = proxied;
    });
    using client = clientOf(agent);
    assert.equal((await client.health({ requestTimeoutMs: 30_000 })).alive, true);
  });

  test("`connect` rejects an agent whose certificate has another authority or name", async () => {
    const other = await issueCertificates();
    const authority = await refusal({ caPem: other.ca });
    assert.equal(authority.status, "UNAVAILABLE");
    assert.match(authority.message, /certificate/);
    assert.equal(authority.reason, undefined);
    assert.match((await refusal({ serverName: "someone-else" })).message, /altname/);
  });

  test("a connection timeout fails all waiting calls, and a later call dials again", async () => {
    let isSilent = true;
    await using door = await listener((socket) => {
      if (isSilent) {
        socket.resume();
        return;
      }
      const inner = connectSocket(agent.port, "127.0.0.1");
      socket.pipe(inner).pipe(socket);
      inner.on("error", () => socket.destroy());
      socket.on("close", () => inner.destroy());
    });
    using client = clientOf(agent, { address: `127.0.0.1:${door.port}`, connectTimeoutMs: 200 });
    const left = await Promise.all([
      failureOf(client.health()),
      failureOf(client.files.readFile("/etc/hostname")),
      failureOf(client.files.opendir("/")[Symbol.asyncIterator]().next()),
      failureOf(client.files.writeFile("/tmp/never", "x")),
      failureOf(client.commands.end("none")),
      failureOf(client.snapshots.prepare()),
      failureOf(client.start(["true"]).wait()),
    ]);
    for (const { status, code, message } of left) {
      assert.deepEqual([status, code], ["UNAVAILABLE", "CONNECT_TIMED_OUT"]);
      assert.match(
        message,
        /^no connection within 200 ms: 127\.0\.0\.1:\d+ accepts the connection but does not answer$/,
      );
    }
    await until(() => door.sockets[0]?.readableEnded === true, "the silent connection is closed");
    isSilent = false;
    assert.equal((await client.health({ waitForReady: true, requestTimeoutMs: 30_000 })).alive, true);
  });

  test("a call with `waitForReady` succeeds once the agent has started", async () => {
    const port = await freePort();
    using early = clientOf(agent, { address: `127.0.0.1:${port}` });
    const answer = early.health({ waitForReady: true, requestTimeoutMs: 30_000 });
    const { certificates } = agent;
    await using late = await startAgent({ certificates, env: { SVC_GUEST_PORT: String(port) } });
    assert.equal((await answer).alive, true);
    assert.notEqual(late.pid, agent.pid);
  });

  test("calls on a closed client fail with GuestError", async () => {
    const client = clientOf(agent);
    client.close();
    await assert.rejects(client.health(), /the client has been closed/);
    await assert.rejects(client.run(["true"]), GuestError);
    assert.throws(() => client.start(["true"]), GuestError);
  });

  test("closing a client ends its watches with CLIENT_CLOSED", async () => {
    const client = clientOf(agent);
    const watches = [client.watchUsage(), client.ports.watch(), client.files.watch("/tmp")];
    await Promise.all(watches.map((watch) => watch.next()));
    // This watch waits for its reader, and not for the agent.
    const [unread] = watches.splice(0, 1);
    const pending = watches.map((watch) => failureOf(watch.next()));
    client.close();
    const closed = unread === undefined ? [] : [failureOf(unread.next())];
    for (const failure of [...pending, ...closed]) {
      const error = await failure;
      assert.deepEqual([error.status, error.code, isTransient(error)], ["CANCELLED", "CLIENT_CLOSED", false]);
    }
  });

  test("closing a client ends a watch that is reconnecting", async () => {
    await using proxy = await relayTo(agent.port);
    const client = clientOf({ ...agent, port: proxy.port });
    const watch = client.files.watch("/tmp");
    await watch.next();
    const failure = failureOf(watch.next());
    proxy.cut();
    await until(() => proxy.dialled > 1, "the watch reconnects");
    client.close();
    assert.equal((await failure).code, "CLIENT_CLOSED");
  });

  test("aborted watches reject with ABORT_ERR even if their client is closed", async () => {
    const client = clientOf(agent);
    const stop = new AbortController();
    const { signal } = stop;
    const watches = [client.watchUsage({ signal }), client.files.watch("/tmp", { signal })];
    await Promise.all(watches.map((watch) => watch.next()));
    const pending = watches.map((watch) => failureOf(watch.next()));
    stop.abort();
    client.close();
    for (const failure of pending) assert.equal((await failure).code, "ABORT_ERR");
  });

  test("closing a client lets its running calls finish", async () => {
    const client = clientOf(agent);
    const process = client.start(["cat"], { stdin: true });
    await process.started;
    client.close();
    process.stdin.end("still there");
    process.stdout.resume();
    assert.equal((await process.wait()).exitCode, 0);
  });
});
