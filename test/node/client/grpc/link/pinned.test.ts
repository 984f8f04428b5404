import assert from "node:assert/strict";
import { promisify } from "node:util";
import { describe, test } from "node:test";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { connect, GuestError } from "../../../../../src/node/client/index.ts";
import {
  type CertificateOptions,
  type Certificates,
  issueCertificates,
  SERVER_NAME,
} from "../../../../fixtures/certificates.ts";

/** The code of a call to a server without any method: AGENT_TOO_OLD once it is connected. */
async function codeOf(
  { ca, server, client }: Certificates,
  trust: { readonly ca?: string; readonly pinned?: string } = {},
): Promise<string> {
  const listening = new Server();
  const pair = { private_key: Buffer.from(server.key), cert_chain: Buffer.from(server.cert) };
  const port = await promisify(listening.bindAsync.bind(listening))(
    "127.0.0.1:0",
    // It does not ask for the client's: that of an expired authority is the guest's clock's to judge.
    ServerCredentials.createSsl(Buffer.from(ca), [pair], false),
  );
  using guest = connect({
    address: `127.0.0.1:${port}`,
    caPem: trust.ca ?? ca,
    certPem: client.cert,
    keyPem: client.key,
    serverName: SERVER_NAME,
    token: "any",
    pinnedCertPem: trust.pinned,
  });
  try {
    await guest.health({ requestTimeoutMs: 60_000 });
  } catch (error) {
    assert.ok(error instanceof GuestError, String(error));
    return error.code;
  } finally {
    listening.forceShutdown();
  }
  assert.fail("the server has no method");
}

function issued(options: CertificateOptions): Promise<Certificates> {
  return issueCertificates(undefined, options);
}

describe("the pinned certificate of an agent", () => {
  test("a pinned certificate is accepted although it or its CA has expired", async () => {
    const expired = await issued({ serverValidity: "expired" });
    assert.equal(await codeOf(expired), "SERVER_CERTIFICATE_EXPIRED");
    assert.equal(await codeOf(expired, { pinned: expired.server.cert }), "AGENT_TOO_OLD");
    const both = await issued({ serverValidity: "expired", authorityValidity: "expired" });
    assert.equal(await codeOf(both, { pinned: both.server.cert }), "AGENT_TOO_OLD");
  });

  test("pinning allows an expired certificate, but not an untrusted or future one", async () => {
    const expired = await issued({ serverValidity: "expired" });
    const other = await issued({});
    assert.equal(await codeOf(expired, { pinned: other.server.cert }), "SERVER_CERTIFICATE_EXPIRED");
    const future = await issued({ serverValidity: "future" });
    assert.equal(await codeOf(future, { pinned: future.server.cert }), "SERVER_CERTIFICATE_NOT_YET_VALID");
    const stranger = await issued({ authorityName: "another authority" });
    assert.equal(
      await codeOf(stranger, { ca: other.ca, pinned: stranger.server.cert }),
      "SERVER_CERTIFICATE_UNTRUSTED",
    );
  });

  test("a valid certificate that is pinned is accepted", async () => {
    const valid = await issued({});
    assert.equal(await codeOf(valid, { pinned: valid.server.cert }), "AGENT_TOO_OLD");
  });
});
