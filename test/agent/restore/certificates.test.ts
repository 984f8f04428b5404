import assert from "node:assert/strict";
import { connect } from "node:http2";
import { describe, it } from "node:test";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { type Certificates, type Identity, issueCertificates, SERVER_NAME } from "../../fixtures/certificates.ts";
import { callHeaders } from "../../fixtures/raw-http2.ts";

type Outcome = "answered" | "refused";

/** Asks for Health with a certificate, as a client that checks nothing: the agent's decision counts. */
function ask(port: number, token: string, identity: Partial<Identity>): Promise<Outcome> {
  return new Promise((resolve) => {
    const session = connect(`https://127.0.0.1:${port}`, {
      rejectUnauthorized: false,
      servername: SERVER_NAME,
      ...identity,
    });
    const settle = (outcome: Outcome): void => {
      session.destroy();
      resolve(outcome);
    };
    session.on("error", () => settle("refused"));
    session.on("close", () => settle("refused"));
    const stream = session.request(callHeaders("Health", token));
    stream.on("error", () => settle("refused"));
    stream.on("trailers", (fields) => settle(fields["grpc-status"] === "0" ? "answered" : "refused"));
    stream.end(Buffer.alloc(5));
    stream.resume();
  });
}

function withRoot(certificates: Certificates): Identity {
  return { cert: `${certificates.client.cert}\n${certificates.ca}`, key: certificates.client.key };
}

const right = await issueCertificates();
const agent = forAllTests(await startAgent({ certificates: right }));

describe("a client certificate", () => {
  /** Starts an agent that trusts these certificates' authority, and calls it with its client's certificate. */
  async function trusted(certificates: Certificates, reason?: string): Promise<Outcome> {
    await using its = await startAgent({ certificates });
    const outcome = await ask(its.port, its.token, certificates.client);
    if (reason !== undefined && outcome === "refused") {
      assert.match(String((await its.logged("connection_refused"))["reason"]), new RegExp(reason));
    }
    return outcome;
  }

  it("of the right authority that is not valid yet is accepted: the guest's clock may be behind", async () => {
    assert.equal(await trusted(await issueCertificates(undefined, { clientValidity: "future" })), "answered");
  });

  it("that is not valid yet is accepted also when its authority is not either", async () => {
    const certificates = await issueCertificates(undefined, { clientValidity: "future", authorityValidity: "future" });
    assert.equal(await trusted(certificates), "answered");
  });

  it("whose authority has expired is refused", async () => {
    const certificates = await issueCertificates(undefined, { authorityValidity: "expired" });
    assert.equal(await trusted(certificates, "expired on \\d{4}-.*Z, by the guest's clock"), "refused");
  });

  it("of another authority is refused, whatever its time and its authority's name, root sent along or not", async () => {
    for (const authorityName of ["guest agent test authority", "somebody else"]) {
      for (const clientValidity of ["now", "future", "expired"] as const) {
        for (const authorityValidity of ["now", "future"] as const) {
          const rogue = await issueCertificates(undefined, { authorityName, clientValidity, authorityValidity });
          for (const identity of [rogue.client, withRoot(rogue)]) {
            const what = `${authorityName}, ${clientValidity}, authority ${authorityValidity}`;
            assert.equal(await ask(agent.port, agent.token, identity), "refused", what);
          }
        }
      }
    }
  });

  it("that is missing is refused", async () => {
    assert.equal(await ask(agent.port, agent.token, {}), "refused");
  });
});

describe("the agent's own certificate", () => {
  it("that has expired gets the warning again when its files are read anew and hold the same", async () => {
    const certificates = await issueCertificates(undefined, { serverValidity: "expired" });
    await using its = await startAgent({ certificates });
    its.kill("SIGHUP");
    await its.logged("credentials_renewed");
    assert.equal(its.log.filter(({ event }) => event === "server_certificate_expired").length, 2);
  });

  it("that has expired gets a warning at the start, and one that has not gets none", async () => {
    const certificates = await issueCertificates(undefined, { serverValidity: "expired" });
    await using its = await startAgent({ certificates });
    const { level, not_after: notAfter } = await its.logged("server_certificate_expired");
    assert.equal(level, "warn");
    assert.ok(Date.parse(String(notAfter)) < Date.now());
    assert.equal(await ask(its.port, its.token, certificates.client), "answered", "it serves all the same");
    await using other = await startAgent();
    assert.ok(!other.log.some(({ event }) => event === "server_certificate_expired"));
  });
});
