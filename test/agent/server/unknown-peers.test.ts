import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import tls from "node:tls";
import { type Identity, issueCertificates, SERVER_NAME } from "../../fixtures/certificates.ts";
import { clientOf } from "../../fixtures/guest-client.ts";
import { type ForgedChain, type ForgedSmallChain, forgeChain } from "../../fixtures/forged-chains.ts";
import { FRAME, frame, PREFACE, RawHttp2 } from "../../fixtures/raw-http2.ts";
import { type SocketAgent, startSocketAgent } from "../../fixtures/socket-agent.ts";
import { TlsRecords } from "../../fixtures/tls-records.ts";

/*
 * What an unknown peer can make the agent do. It reaches the port, and has no certificate, a made-up one, or a right
 * one without a token. The node agent's calls are answered meanwhile.
 */

const NO_ISSUER = /^client certificate refused: unable to get local issuer certificate$/;
const UNKNOWN_TYPE = 0xfa;
const FRAME_BYTES = 16_384;

describe("a peer of whom nobody knows who it is", () => {
  let agent: SocketAgent;
  let stranger: Identity;
  before(async () => {
    agent = await startSocketAgent();
    ({ client: stranger } = await issueCertificates());
  });
  after(async () => {
    await agent[Symbol.asyncDispose]();
  });

  async function othersAreServed(): Promise<void> {
    using newcomer = await RawHttp2.dial(agent);
    assert.equal(await newcomer.ask("Health", agent.token), "0");
  }

  /** The alert that a TLS client gets, and nothing else. */
  async function toldTo(identity: Identity | undefined): Promise<string> {
    const { ca } = agent.certificates;
    const options = { port: agent.port, host: "127.0.0.1", servername: SERVER_NAME, ca, ALPNProtocols: ["h2"] };
    const socket = tls.connect({ ...options, ...identity });
    let told = "";
    socket.on("data", () => (told += "data "));
    socket.on("error", (error) => (told += String((error as { code?: string }).code)));
    await new Promise<void>((resolve) => socket.once("close", () => resolve()));
    return told;
  }

  const CHAINS: readonly [string, ForgedChain | ForgedSmallChain, RegExp, RegExp][] = [
    ["75 certificates", { links: 75 }, /ILLEGAL_PARAMETER/, /certificates may have 5\.5 KiB together$/],
    ["400 extensions", { links: 1, extensions: 400 }, /DECODE_ERROR/, /^client certificate refused: more than 400 el/],
    ["100 extensions", { links: 1, extensions: 100 }, /UNKNOWN_CA/, NO_ISSUER],
    ["5 small certificates", { links: 5, extensions: 0 }, /DECODE_ERROR/, /^client certificate refused: more than 4 c/],
    ["4 small certificates", { links: 4, extensions: 0 }, /UNKNOWN_CA/, NO_ISSUER],
    ["a certificate whose key is slow to use", { links: 1 }, /UNKNOWN_CA/, NO_ISSUER],
    ["a key that is slow to use", { links: 1, bits: 4_608, exponent: "usual" }, /UNKNOWN_CA/, NO_ISSUER],
    ["3 certificates with usual keys", { links: 3, exponent: "usual" }, /UNKNOWN_CA/, NO_ISSUER],
  ];
  for (const [what, forged, answer, logged] of CHAINS) {
    test(`who forges a chain of ${what} is told so, and the log says why`, async () => {
      assert.match(await toldTo(forgeChain(forged)), answer);
      await agent.logged("connection_refused", ({ reason }) => logged.test(String(reason)));
      await othersAreServed();
    });
  }

  for (const [flood, record] of [
    ["KeyUpdates", (peer: TlsRecords) => peer.keyUpdate()],
    ["records of one byte", (peer: TlsRecords) => peer.data(Buffer.of(0))],
  ] as const) {
    test(`with no certificate is cut off when it sends ${flood} at once`, async () => {
      using peer = await TlsRecords.dial(agent, undefined);
      await peer.flood(() => record(peer));
      await othersAreServed();
    });

    test(`with a certificate of another authority cannot send ${flood}`, async () => {
      using peer = await TlsRecords.dial(agent, stranger);
      await peer.flood(() => record(peer));
      await agent.logged("connection_refused", ({ reason }) => String(reason).endsWith("signature failure"));
      await othersAreServed();
    });
  }

  test("with a certificate is cut off after 128 KeyUpdates, and the log says why", async () => {
    using peer = await TlsRecords.dial(agent, agent.certificates.client);
    await peer.flood(() => peer.keyUpdate());
    await agent.logged("connection_failed", ({ reason }) => reason === "TLS failed: ERR_SSL_TOO_MANY_KEY_UPDATES");
    await othersAreServed();
  });

  test("with a certificate is ended after 1,000 short records, and the log says why", async () => {
    using peer = await TlsRecords.dial(agent, agent.certificates.client);
    // A frame of an unknown type that never ends.
    const frames = [frame(FRAME.settings, 0, 0), frame(UNKNOWN_TYPE, 0, 0, Buffer.alloc(FRAME_BYTES))];
    const begin = Buffer.concat([PREFACE, ...frames]).subarray(0, -FRAME_BYTES);
    await peer.send(peer.data(begin));
    await peer.flood(() => peer.data(Buffer.of(0)));
    await agent.logged("connection_failed", ({ reason }) => String(reason).startsWith("no request was let in within"));
    await othersAreServed();
  });

  test("with a client of grpc-js is told why it is refused", async () => {
    const { ca } = agent.certificates;
    using client = clientOf({ ...agent, certificates: { ca, client: stranger } });
    await assert.rejects(client.health({ timeoutMs: 20_000 }), /alert unknown ca|UNKNOWN_CA/i);
  });
});
