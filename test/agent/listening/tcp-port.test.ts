import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { describe, test } from "node:test";
import { listenTcp } from "../../../src/agent/listening/listen.ts";
import { listener } from "../../fixtures/listeners.ts";

const HAS_IPV6 = Object.values(networkInterfaces())
  .flat()
  .some((address) => address?.family === "IPv6");

async function accepts(host: string, port: number): Promise<void> {
  const socket = connect(port, host);
  await once(socket, "connect");
  socket.destroy();
}

describe("a TCP port", () => {
  test("a TCP port listens on IPv4, and on IPv6 if available", async () => {
    const server = createServer((socket) => socket.destroy());
    const port = await listenTcp(server, 0);
    await accepts("127.0.0.1", port);
    if (HAS_IPV6) await accepts("::1", port);
    server.close();
  });

  test(
    "listenTcp fails with ALREADY_EXISTS if the port is used on IPv6",
    { skip: !HAS_IPV6 && "needs IPv6" },
    async () => {
      await using other = await listener(undefined, { host: "::1", port: 0, ipv6Only: true });
      const server = createServer();
      await assert.rejects(listenTcp(server, other.port), { name: "AgentError", reason: "ALREADY_EXISTS" });
      assert.equal(server.listening, false);
    },
  );
});
