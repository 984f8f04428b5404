import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { GuestClient } from "../../../src/node/client/index.ts";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { until } from "../../fixtures/awake.ts";
import { type Certificates, issueCertificates } from "../../fixtures/certificates.ts";
import { fuseMount } from "../../fixtures/programs/index.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { NEEDS_CREDIT, NEEDS_FUSE } from "../../fixtures/privileges.ts";
import { replaceFile as put, testDirectory } from "../../fixtures/files.ts";

const ENTROPY = new Uint8Array(64).fill(7);

async function putTls(directory: string, { ca, server }: Certificates): Promise<void> {
  await put(join(directory, "ca.pem"), ca);
  await put(join(directory, "server.pem"), server.cert);
  await put(join(directory, "server.key"), server.key);
}

/** An agent that has its token from that file. */
function startWithTokenFile(file: string): Promise<RunningAgent> {
  return startAgent({ env: { SVC_INSTANCE_TOKEN: undefined, SVC_INSTANCE_TOKEN_FILE: file } });
}

function answers(client: GuestClient): Promise<boolean> {
  return client.health().then(
    () => true,
    () => false,
  );
}

describe("a token from a file", () => {
  it("a replaced token file applies at once: the new token works, the old one fails", async () => {
    await using directory = await testDirectory();
    await put(directory.at("token"), "token-one-0123456789");
    await using agent = await startWithTokenFile(directory.at("token"));
    using first = clientOf(agent, { token: "token-one-0123456789" });
    assert.equal(await answers(first), true);
    await put(directory.at("token"), "token-two-0123456789\n");
    using second = clientOf(agent, { token: "token-two-0123456789" });
    const calls = Array.from({ length: 20 }, () => answers(second));
    assert.ok((await Promise.all(calls)).every(Boolean), "also for many calls at once");
    await assert.rejects(first.health(), { status: "UNAUTHENTICATED", reason: "UNAUTHENTICATED" });
  });

  it("the old token stays valid while the token file is empty", async () => {
    await using directory = await testDirectory();
    await put(directory.at("token"), "token-one-0123456789");
    await using agent = await startWithTokenFile(directory.at("token"));
    await put(directory.at("token"), "");
    using wrong = clientOf(agent, { token: "another-0123456789" });
    assert.equal(await answers(wrong), false);
    const line = await agent.logged("credentials_refused");
    assert.equal(line["problem"], "SVC_INSTANCE_TOKEN_FILE: names an empty file");
    using right = clientOf(agent, { token: "token-one-0123456789" });
    assert.equal(await answers(right), true);
  });
});

describe("a credential volume that never answers", () => {
  it("a hung credential volume delays no call; its files are reread later", NEEDS_FUSE, async () => {
    await using directory = await testDirectory();
    await put(directory.at("token"), "token-one-0123456789");
    const spec = directory.at("process.json");
    await put(spec, "{}");
    const sources = { SVC_INSTANCE_TOKEN_FILE: directory.at("token"), SVC_PROCESS_SPEC_FILE: spec };
    await using agent = await startAgent({ env: { SVC_INSTANCE_TOKEN: undefined, ...sources } });
    await using mount = await fuseMount("hanging_mount", directory.path);
    using client = clientOf(agent, { token: "token-one-0123456789" });
    /** Whether the duties could read neither the token nor the spec file again. */
    const refused = async (): Promise<boolean[]> => {
      const { degraded } = await client.snapshots.duties({ entropy: ENTROPY });
      return ["credentials_reload:refused", "process_env:refused"].map((reason) => degraded.includes(reason));
    };
    assert.deepEqual(await refused(), [true, true]);
    const line = await agent.logged("credentials_refused");
    assert.equal(
      line["problem"],
      "SVC_INSTANCE_TOKEN_FILE: names a file whose file system does not respond (ETIMEDOUT)",
    );
    // More reloads than threads: each hanging read would hold one.
    for (let round = 0; round < 24; round++) assert.deepEqual(await refused(), [true, true]);
    using wrong = clientOf(agent, { token: "another-0123456789" });
    await assert.rejects(wrong.health(), { status: "UNAUTHENTICATED" });
    await client.files.stat("/");
    await mount[Symbol.asyncDispose]();
    await until(async () => !(await refused()).includes(true), "both files can be read again");
  });
});

describe("the TLS files", () => {
  it("replaced TLS files are noticed when a client connects", async () => {
    await using agent = await startAgent();
    const renewed = await issueCertificates();
    await putTls(agent.credentialsDir, renewed);
    using after = clientOf(agent, { ...pems(renewed) });
    // The first attempts make the agent check its files. This client does not wait long between attempts.
    await until(() => answers(after), "the agent takes the new certificates");
    assert.equal((await agent.logged("credentials_renewed"))["cause"], "files");
  });

  it("removing an authority ends only the connections whose client certificates it signed", async () => {
    await using agent = await startAgent();
    // OpenSSL uses the first authority of a name, even if another one signed.
    const renewed = await issueCertificates(undefined, { authorityName: "another authority" });
    using old = clientOf(agent);
    const running = old.start(["sleep", "1000"]);
    await running.started;
    // First one authority more, then one fewer.
    await put(join(agent.credentialsDir, "ca.pem"), `${agent.certificates.ca}\n${renewed.ca}`);
    agent.kill("SIGHUP");
    await agent.logged("credentials_renewed");
    using other = clientOf(agent, { ...pems(renewed), caPem: agent.certificates.ca });
    const stays = other.start(["cat"], { stdin: true });
    await stays.started;
    assert.equal(await answers(old), true);
    assert.deepEqual(endedSessions(agent), []);
    await put(join(agent.credentialsDir, "ca.pem"), renewed.ca);
    await until(async () => {
      assert.equal(await answers(other), true);
      return endedSessions(agent).length > 0;
    }, "the connections of the old authority are ended");
    assert.deepEqual(endedSessions(agent), [1]);
    await assert.rejects(running.wait(), { name: "GuestError", reason: "AUTHORITY_REPLACED" });
    assert.equal(await answers(old), false);
    stays.stdin.end();
    assert.equal((await stays.wait()).exitCode, 0);
  });

  it("mismatched TLS files are logged once and not used until they match", async () => {
    await using agent = await startAgent();
    const renewed = await issueCertificates();
    using before = clientOf(agent);
    // The calls make the agent check its files.
    const untilLogged = (wanted: string): Promise<void> =>
      until(async () => {
        assert.equal(await answers(before), true);
        return agent.log.some(({ event }) => event === wanted);
      }, `the agent has logged ${wanted}`);
    await put(join(agent.credentialsDir, "server.key"), renewed.server.key);
    await untilLogged("credentials_refused");
    const line = await agent.logged("credentials_refused");
    assert.deepEqual(
      [line["cause"], line["problem"]],
      ["files", "SVC_TLS_KEY_FILE: does not belong to the certificate of SVC_TLS_CERT_FILE"],
    );
    await put(join(agent.credentialsDir, "server.pem"), renewed.server.cert);
    await untilLogged("credentials_renewed");
    assert.equal(agent.log.filter(({ event }) => event === "credentials_refused").length, 1);
  });

  it("a restore call that replaces the CA's TLS files is still answered", NEEDS_CREDIT, async () => {
    await using agent = await startAgent();
    const renewed = await issueCertificates();
    await putTls(agent.credentialsDir, renewed);
    using before = clientOf(agent);
    assert.equal((await before.snapshots.duties({ entropy: ENTROPY })).degraded, "");
    using after = clientOf(agent, { ...pems(renewed) });
    assert.equal(await answers(after), true);
    assert.equal(await answers(before), false, "its connection is closed, and its certificate is of the old authority");
  });
});

/** Number of connections that each new set of files has ended. */
function endedSessions(agent: RunningAgent): number[] {
  return agent.log
    .filter(({ event }) => event === "replaced_authority_disconnected")
    .map((line) => Number(line["connections"]));
}

function pems({ ca, client }: Certificates) {
  return { caPem: ca, certPem: client.cert, keyPem: client.key };
}
