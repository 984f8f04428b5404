import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { connect, createServer as createTlsServer, type TLSSocket } from "node:tls";
import { socketBelow } from "../../../src/agent/internals/index.ts";
import { issueCertificates } from "../../fixtures/certificates.ts";

test("a server's TLS socket leads to the socket that was accepted", async (t) => {
  const { server: own } = await issueCertificates();
  const secure = createTlsServer(own);
  const server = createServer((socket) => secure.emit("connection", socket)).listen(0, "127.0.0.1");
  t.after(() => server.close());
  await once(server, "listening");
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const secured = once(secure, "secureConnection") as Promise<[TLSSocket]>;
  const { port } = server.address() as AddressInfo;
  const client = connect({ port, host: "127.0.0.1", rejectUnauthorized: false }).on("error", () => {});
  t.after(() => client.destroy());
  const [[below], [socket]] = await Promise.all([accepted, secured]);
  t.after(() => below.destroy());
  assert.equal(socketBelow(socket), below);
  assert.equal(socketBelow(below), undefined);
});

test("a socket of another Node than we know leads nowhere", () => assert.equal(socketBelow({}), undefined));
