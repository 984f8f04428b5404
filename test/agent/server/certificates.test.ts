import assert from "node:assert/strict";
import { randomBytes, webcrypto } from "node:crypto";
import { connect } from "node:http2";
import { describe, test } from "node:test";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import {
  clientAuth,
  type Identity,
  issue as issueOne,
  issueCertificates,
  type Issued,
  SERVER_NAME,
  serverAuth,
  type Wish,
} from "../../fixtures/certificates.ts";
import { callHeaders } from "../../fixtures/raw-http2.ts";

const RSA = {
  name: "RSASSA-PKCS1-v1_5",
  hash: "SHA-256",
  publicExponent: new Uint8Array([1, 0, 1]),
  modulusLength: 2048,
};

type Outcome = "answered" | "refused";

/** The agent's answer to Health with a client's certificate; the client checks the agent's by `ca`, or not at all. */
function ask({ port, token }: RunningAgent, identity: Partial<Identity>, ca?: string): Promise<Outcome> {
  const options = { servername: SERVER_NAME, rejectUnauthorized: ca !== undefined, ...(ca !== undefined && { ca }) };
  const session = connect(`https://127.0.0.1:${port}`, { ...options, ...identity });
  const stream = session.request(callHeaders("Health", token));
  return new Promise((resolve) => {
    const settle = (outcome: Outcome): void => {
      session.destroy();
      resolve(outcome);
    };
    session.on("error", () => settle("refused")).on("close", () => settle("refused"));
    stream.on("error", () => settle("refused"));
    stream.on("trailers", (fields) => settle(fields["grpc-status"] === "0" ? "answered" : "refused"));
    stream.resume().end(Buffer.alloc(5));
  });
}

/** A certificate as companies' authorities issue them. */
function issue(wish: Wish): Promise<Issued> {
  const subject = `C=DE, O=Some Company, OU=Sandboxes, CN=${randomBytes(8).toString("hex")}`;
  return issueOne({ subject, namesKeys: true, ...wish });
}

const root = await issue({ isAuthority: true });
const other = await issue({ isAuthority: true });
const middle = await issue({ issuer: root, isAuthority: true });
const server = await issue({ issuer: root, usages: [serverAuth] });
const client = await issue({ issuer: root, usages: [clientAuth] });
const below = await issue({ issuer: middle, usages: [clientAuth] });

/** An agent with a certificate, and the authority of its clients. */
function start(clientCa: string, own: Issued = server): Promise<RunningAgent> {
  const issueClient = (): never => assert.fail("the tests issue their own");
  const identity = { cert: own.chain, key: own.key };
  return startAgent({ certificates: { ca: clientCa, server: identity, client: { cert: "", key: "" }, issueClient } });
}

/** The answer to a client who sends a chain, by default all that is above it, and checks the agent's. */
function call(agent: RunningAgent, { key, chain }: Issued, cert = chain): Promise<Outcome> {
  return ask(agent, { cert, key }, root.cert);
}

describe("certificates of an authority of one's own", () => {
  test("client and server certificates may use any common key type", async () => {
    for (const algorithm of [
      { name: "ECDSA", namedCurve: "P-384", hash: "SHA-384" },
      { name: "ECDSA", namedCurve: "P-521", hash: "SHA-512" },
      { name: "Ed25519" },
      RSA,
    ]) {
      const own = await issue({ issuer: root, usages: [serverAuth], algorithm });
      await using agent = await start(root.cert, own);
      assert.equal(await call(agent, await issue({ issuer: root, usages: [clientAuth], algorithm })), "answered");
    }
  });

  test("a certificate may omit extended key usage; a wrong usage is rejected", async () => {
    await using agent = await start(root.cert, await issue({ issuer: root }));
    assert.equal(await call(agent, await issue({ issuer: root })), "answered");
    assert.equal(await call(agent, await issue({ issuer: root, usages: [serverAuth, clientAuth] })), "answered");
    assert.equal(await call(agent, server), "refused");
    await using wrong = await start(root.cert, client);
    assert.equal(await call(wrong, client), "refused");
  });

  test("client and agent may each send an intermediate certificate in their chain", async () => {
    await using agent = await start(root.cert, await issue({ issuer: middle, usages: [serverAuth] }));
    assert.equal(await call(agent, below), "answered");
    assert.equal(await call(agent, below, below.cert), "refused");
  });

  test("the agent may trust an intermediate authority without its root", async () => {
    await using agent = await start(middle.cert);
    assert.equal(await call(agent, below), "answered");
    assert.equal(await call(agent, below, below.cert), "answered");
    assert.equal(await call(agent, client), "refused");
  });

  test("client certificate chains over 5.5 KiB are rejected; three RSA-4096 certificates fit", async () => {
    const algorithm = { ...RSA, modulusLength: 4_096 };
    const keys = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
    const large = { algorithm, keys };
    const top = await issue({ ...large, isAuthority: true });
    const between = await issue({ ...large, issuer: top, isAuthority: true });
    const own = await issue({ ...large, issuer: between, usages: [clientAuth] });
    await using agent = await start(top.cert);
    assert.equal(await call(agent, own, own.chain + top.cert), "answered");
    assert.equal(await call(agent, own, own.chain + top.cert + between.cert), "refused");
    await agent.logged("connection_refused", ({ reason }) => /certificate chain exceeds 5\.5 KiB/.test(String(reason)));
  });

  test("client certificates may come from any of several authorities", async () => {
    await using agent = await start(other.cert + middle.cert);
    assert.equal(await call(agent, below), "answered");
    assert.equal(await call(agent, await issue({ issuer: other, usages: [clientAuth] })), "answered");
    assert.equal(await call(agent, client), "refused");
  });
});

describe("a client certificate", () => {
  test("a not-yet-valid client certificate is accepted, because the guest's clock may lag", async () => {
    for (const authorityValidity of ["now", "future"] as const) {
      const certificates = await issueCertificates(undefined, { clientValidity: "future", authorityValidity });
      await using agent = await startAgent({ certificates });
      assert.equal(await ask(agent, certificates.client), "answered", authorityValidity);
    }
  });

  test("a client certificate from an expired authority is rejected", async () => {
    const certificates = await issueCertificates(undefined, { authorityValidity: "expired" });
    await using agent = await startAgent({ certificates });
    assert.equal(await ask(agent, certificates.client), "refused");
    const { reason } = await agent.logged("connection_refused");
    assert.match(String(reason), /expired on \d{4}-.*Z, by the guest's clock/);
  });

  test("a missing or foreign client certificate is rejected", async () => {
    await using agent = await startAgent();
    assert.equal(await ask(agent, {}), "refused");
    for (const authorityName of ["guest agent test authority", "somebody else"])
      for (const clientValidity of ["now", "future", "expired"] as const)
        for (const authorityValidity of ["now", "future"] as const) {
          const options = { authorityName, clientValidity, authorityValidity };
          const { ca, client: rogue } = await issueCertificates(undefined, options);
          for (const cert of [rogue.cert, `${rogue.cert}\n${ca}`])
            assert.equal(await ask(agent, { ...rogue, cert }), "refused", JSON.stringify(options));
        }
  });
});

describe("the agent's own certificate", () => {
  test("an expired server certificate is used and logged as a warning", async () => {
    const certificates = await issueCertificates(undefined, { serverValidity: "expired" });
    await using agent = await startAgent({ certificates });
    const { level, not_after: notAfter } = await agent.logged("server_certificate_expired");
    assert.equal(level, "warn");
    assert.ok(Date.parse(String(notAfter)) < Date.now());
    assert.equal(await ask(agent, certificates.client), "answered", "it serves all the same");
    agent.kill("SIGHUP");
    await agent.logged("credentials_renewed");
    assert.equal(agent.log.filter(({ event }) => event === "server_certificate_expired").length, 2);
    await using valid = await startAgent();
    assert.ok(!valid.log.some(({ event }) => event === "server_certificate_expired"));
  });
});
