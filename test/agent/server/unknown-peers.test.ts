import assert from "node:assert/strict";
import { describe, test } from "node:test";
import tls from "node:tls";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { relayTo } from "../../fixtures/relay.ts";
import { type Identity, issueCertificates, SERVER_NAME } from "../../fixtures/certificates.ts";
import { forgeChain, type ForgedChain, type ForgedSmallChain } from "../../fixtures/forged-chains.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { FRAME, frame, PREFACE, RawHttp2 } from "../../fixtures/raw-http2.ts";
import { ask, RpcFailure } from "../../fixtures/rpc-clients.ts";
import { TlsRecords } from "../../fixtures/tls-records.ts";

/*
 * What an unknown peer can make the agent do. It reaches the port, and has no certificate, a made-up one, or a right
 * one without a token. The node agent's calls are answered meanwhile.
 */

const NO_ISSUER = /^client certificate rejected: unable to get local issuer certificate$/;
const UNKNOWN_TYPE = 0xfa;
const FRAME_BYTES = 16_384;
const DAY_MS = 86_400_000;
/** INTERNAL, UNAVAILABLE, and what some clients make of a broken connection: CANCELLED, UNKNOWN. */
const BROKEN: ReadonlySet<number> = new Set([1, 2, 13, 14]);

const agent = forAllTests(await startAgent());
const [beforeMs, yesterdayMs] = [Date.now() - 2 * DAY_MS, Date.now() - DAY_MS];
const stranger = (await issueCertificates()).client;
/** Clients that the agent refuses; empty texts: no certificate at all. */
const identities = {
  none: { cert: "", key: "" },
  expired: await agent.certificates.issueClient({ notBefore: new Date(beforeMs), notAfter: new Date(yesterdayMs) }),
  "of another authority": stranger,
  "for servers": agent.certificates.server,
};

/** What a TLS client gets: data, and the error that ends it. */
async function toldTo(identity: Identity): Promise<string> {
  const { ca } = agent.certificates;
  const options = { port: agent.port, host: "127.0.0.1", servername: SERVER_NAME, ca, ALPNProtocols: ["h2"] };
  const socket = tls.connect({ ...options, ...(identity.cert !== "" && identity) });
  let told = "";
  socket.on("data", () => (told += "data "));
  socket.on("error", (error) => (told += String((error as { code?: string }).code)));
  await new Promise<void>((resolve) => socket.once("close", () => resolve()));
  return told;
}

/** Resolves once the agent has refused a connection for such a reason, later than the first lines of its log. */
async function refusedAfter(lines: number, reason: RegExp): Promise<void> {
  await agent.logged(
    "connection_refused",
    (line) => reason.test(String(line["reason"])) && agent.log.indexOf(line) >= lines,
  );
}

describe("an unauthenticated peer", () => {
  async function othersAreServed(): Promise<void> {
    using newcomer = await RawHttp2.dial(agent);
    assert.equal(await newcomer.ask("Health", agent.token), "0");
  }

  const CHAINS: readonly [string, ForgedChain | ForgedSmallChain, RegExp, RegExp][] = [
    ["75 certificates", { links: 75 }, /ILLEGAL_PARAMETER/, /certificate chain exceeds 5\.5 KiB$/],
    ["400 extensions", { links: 1, extensions: 400 }, /DECODE_ERROR/, /^client certificate rejected: more than 400 el/],
    ["100 extensions", { links: 1, extensions: 100 }, /UNKNOWN_CA/, NO_ISSUER],
    [
      "5 small certificates",
      { links: 5, extensions: 0 },
      /DECODE_ERROR/,
      /^client certificate rejected: more than 4 c/,
    ],
    ["4 small certificates", { links: 4, extensions: 0 }, /UNKNOWN_CA/, NO_ISSUER],
    ["a slow certificate key", { links: 1 }, /UNKNOWN_CA/, NO_ISSUER],
    ["a 4,608-bit key", { links: 1, bits: 4_608, exponent: "usual" }, /UNKNOWN_CA/, NO_ISSUER],
    ["3 normal certificates", { links: 3, exponent: "usual" }, /UNKNOWN_CA/, NO_ISSUER],
  ];
  for (const [what, forged, answer, logged] of CHAINS) {
    test(`a forged chain of ${what} is rejected and logged`, async () => {
      const { length } = agent.log;
      assert.match(await toldTo(await forgeChain(forged)), answer);
      await refusedAfter(length, logged);
      await othersAreServed();
    });
  }

  for (const [flood, record] of [
    ["KeyUpdates", (peer: TlsRecords) => peer.keyUpdate()],
    ["records of one byte", (peer: TlsRecords) => peer.data(Buffer.of(0))],
  ] as const) {
    test(`flooding ${flood} without a certificate ends the connection`, async () => {
      using peer = await TlsRecords.dial(agent, undefined);
      await peer.flood(() => record(peer));
      await othersAreServed();
    });

    test(`a peer with a foreign certificate cannot flood ${flood}`, async () => {
      const { length } = agent.log;
      using peer = await TlsRecords.dial(agent, stranger);
      await peer.flood(() => record(peer));
      await refusedAfter(length, /signature failure$/);
      await othersAreServed();
    });
  }

  test("the agent ends and logs a TLS connection after 128 KeyUpdates", async () => {
    using peer = await TlsRecords.dial(agent, agent.certificates.client);
    await peer.flood(() => peer.keyUpdate());
    await agent.logged("connection_failed", ({ reason }) => reason === "TLS failed: ERR_SSL_TOO_MANY_KEY_UPDATES");
    await othersAreServed();
  });

  test("the agent ends and logs a TLS connection after 1,000 short records", async () => {
    using peer = await TlsRecords.dial(agent, agent.certificates.client);
    // A frame of an unknown type that never ends.
    const frames = [frame(FRAME.settings, 0, 0), frame(UNKNOWN_TYPE, 0, 0, Buffer.alloc(FRAME_BYTES))];
    const begin = Buffer.concat([PREFACE, ...frames]).subarray(0, -FRAME_BYTES);
    await peer.send(peer.data(begin));
    await peer.flood(() => peer.data(Buffer.of(0)));
    await agent.logged("connection_failed", ({ reason }) =>
      String(reason).startsWith("no request was authenticated in "),
    );
    await othersAreServed();
  });

  test("a grpc-js client gets the reason for a rejected certificate", async () => {
    const { ca } = agent.certificates;
    using client = clientOf({ ...agent, certificates: { ca, client: stranger } });
    await assert.rejects(client.health({ requestTimeoutMs: 20_000 }), /alert unknown ca|UNKNOWN_CA/i);
  });
});

/*
 * TLS has alerts for clients without a right certificate (RFC 8446, 6.2), and Go's server sends them during the
 * handshake (crypto/tls, handshake_server.go, processCertsFromClient). A server that lets such a client see HTTP/2
 * first keeps it dialling: SETTINGS are the end of a client's backoff.
 */
describe("a client whose certificate is refused", () => {
  for (const [kind, alert, reason] of [
    ["none", /^ERR_SSL_\S*ALERT_CERTIFICATE_REQUIRED$/, /required, but none was sent$/],
    [
      "expired",
      /^ERR_SSL_\S*ALERT_CERTIFICATE_EXPIRED$/,
      /: expired on \d{4}-\d\d-\d\dT[\d:]+Z, by the guest's clock$/,
    ],
    ["of another authority", /^ERR_SSL_\S*ALERT_UNKNOWN_CA$/, /: certificate signature failure$/],
    ["for servers", /^ERR_SSL_\S*ALERT_UNSUPPORTED_CERTIFICATE$/, /: unsuitable certificate purpose$/],
  ] as const) {
    test(`a refused certificate (${kind}) gets only a TLS alert`, async () => {
      const { length } = agent.log;
      assert.match(await toldTo(identities[kind]), alert);
      await refusedAfter(length, reason);
    });

    test(`a refused certificate (${kind}) fails the call on one connection`, async () => {
      await using relay = await relayTo(agent.port);
      const certificates = { ...agent.certificates, client: identities[kind] };
      const call = ask({ port: relay.port, certificates }, GuestAgent.method.health, {});
      const failure = await call.catch((error: unknown) => error);
      assert.equal(relay.dialled, 1);
      assert.ok(failure instanceof RpcFailure && BROKEN.has(failure.code), String(failure));
    });
  }
});
