import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import tls from "node:tls";
import { create } from "@bufbuild/protobuf";
import { GuestAgent } from "../../../src/shared/gen/svc/guest/v1alpha1/guest_agent_pb.ts";
import { HealthRequestSchema } from "../../../src/shared/gen/svc/guest/v1alpha1/health_pb.ts";
import { type RunningAgent, startAgent } from "../../fixtures/agent.ts";
import { relayTo } from "../../fixtures/byte-relay.ts";
import { type Identity, SERVER_NAME } from "../../fixtures/certificates.ts";
import { BROKEN, refusedIdentities } from "../../fixtures/refused-clients.ts";
import { grpcJsClient, one, RpcFailure } from "../../fixtures/rpc-clients.ts";

/*
 * TLS has alerts for clients without a right certificate (RFC 8446, 6.2), and Go's server sends them during the
 * handshake (crypto/tls, handshake_server.go, processCertsFromClient). A server that lets such a client see HTTP/2
 * first keeps it dialling: SETTINGS are the end of a client's backoff.
 */
describe("a client whose certificate is refused", () => {
  let agent: RunningAgent;
  let identities: Awaited<ReturnType<typeof refusedIdentities>>;
  before(async () => {
    agent = await startAgent();
    identities = await refusedIdentities(agent.certificates);
  });
  after(async () => {
    await agent[Symbol.asyncDispose]();
  });

  /** What a TLS client gets: data, and the error that ends it. */
  async function toldTo(identity: Identity): Promise<string> {
    const { ca } = agent.certificates;
    const target = { port: agent.port, host: "127.0.0.1", servername: SERVER_NAME, ca, ALPNProtocols: ["h2"] };
    const socket = tls.connect({ ...target, ...(identity.cert !== "" && identity) });
    let told = "";
    socket.on("data", () => (told += "data "));
    socket.on("error", (error) => (told += String((error as { code?: string }).code)));
    await new Promise<void>((resolve) => socket.once("close", () => resolve()));
    return told;
  }

  for (const [kind, alert, reason] of [
    ["none", /^ERR_SSL_\S*ALERT_CERTIFICATE_REQUIRED$/, /: it sent none$/],
    [
      "expired",
      /^ERR_SSL_\S*ALERT_CERTIFICATE_EXPIRED$/,
      /: expired on \d{4}-\d\d-\d\dT[\d:]+Z, by the guest's clock$/,
    ],
    ["of another authority", /^ERR_SSL_\S*ALERT_UNKNOWN_CA$/, /: certificate signature failure$/],
    ["for servers", /^ERR_SSL_\S*ALERT_UNSUPPORTED_CERTIFICATE$/, /: unsuitable certificate purpose$/],
  ] as const) {
    test(`(${kind}) gets the alert of TLS in its handshake and nothing of HTTP/2, and the log says why`, async () => {
      assert.match(await toldTo(identities[kind]), alert);
      await agent.logged("connection_refused", (line) => reason.test(String(line["reason"])));
    });

    test(`(${kind}) ends its call on one connection, without a deadline`, async () => {
      await using relay = await relayTo({ port: agent.port, host: "127.0.0.1" });
      const certificates = { ...agent.certificates, client: identities[kind] };
      const guest = grpcJsClient({ port: relay.port ?? 0, certificates });
      const call = one(guest.call(GuestAgent.method.health, [create(HealthRequestSchema)]));
      const failure = await call.catch((error: unknown) => error);
      guest.close();
      assert.equal(relay.dialled, 1);
      assert.ok(failure instanceof RpcFailure && BROKEN.has(failure.code), String(failure));
    });
  }
});
