import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { linkSync, openSync, closeSync, constants, symlinkSync, writeFileSync } from "node:fs";
import { connect, isIPv6, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { describe, it } from "node:test";
import { buffer, text } from "node:stream/consumers";
import {
  connect as connectClient,
  type GuestClient,
  type GuestError,
  type GuestTunnel,
} from "../../../src/node/client/index.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { startAgent, startSocketAgent } from "../../fixtures/agent.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { clientOf, failureOf } from "../../fixtures/guest-client.ts";
import { listener } from "../../fixtures/listeners.ts";
import { inMountNamespace, NEEDS_NAMESPACES } from "../../fixtures/namespaces.ts";

const MIB = 2 ** 20;

const directory = forAllTests(await testDirectory());
const agent = forAllTests(await startAgent());
const client = forAllTests(clientOf(agent));

/** Why a tunnel fails. */
function failure(tunnel: GuestTunnel): Promise<GuestError> {
  return failureOf(once(tunnel.resume(), "close").then(() => undefined));
}

/** Why a tunnel is not opened. */
async function refusal(target: number | string, its: GuestClient = client): Promise<GuestError> {
  using tunnel = its.ports.connect(target);
  tunnel.on("error", () => {});
  return await failureOf(tunnel.opened);
}

async function reasonFor(target: number | string): Promise<readonly [string, string | undefined]> {
  const { status, reason } = await refusal(target);
  return [status, reason];
}

describe("a tunnel", () => {
  it("if the loopback interface is down, a tunnel's error says how to bring it up", NEEDS_NAMESPACES, async () => {
    await using alone = await startSocketAgent({ through: ["unshare", "--net"] });
    using its = connectClient({ address: `unix:${alone.socketPath}`, token: alone.token });
    const { reason, message } = await refusal(8080, its);
    assert.equal(reason, "PORT_UNREACHABLE");
    assert.match(message, /loopback interface is down; bring it up \(`ip link set lo up`\).*ENETUNREACH/);
  });

  it("a tunnel carries every byte both ways and supports half-close", async () => {
    await using server = await listener((socket) => {
      const hash = createHash("sha256");
      socket.on("data", (bytes) => {
        hash.update(bytes);
        socket.write(bytes);
      });
      // Answers long after the client's end.
      socket.on("end", () => socket.end(hash.digest()));
    });
    const tunnel = client.ports.connect(server.port);
    const sent = randomBytes(8 * MIB + 1);
    tunnel.end(sent);
    const got = await buffer(tunnel);
    assert.ok(got.subarray(0, sent.length).equals(sent));
    assert.deepEqual(got.subarray(sent.length), createHash("sha256").update(sent).digest());
  });

  it("a tunnel carries writes of any size in order", async () => {
    await using server = await listener((socket) => socket.pipe(socket));
    const tunnel = client.ports.connect(server.port);
    const got = buffer(tunnel);
    // Lengths at which a frame's length field takes another byte, and the largest frame.
    const sizes = [127, 128, 16_383, 16_384, 196_608, 196_609, 1];
    const alone = sizes.map((size) => randomBytes(size));
    const together = [...sizes, 0, ...sizes].map((size) => randomBytes(size));
    for (const piece of alone) await new Promise((sent) => tunnel.write(piece, sent));
    for (const piece of together) tunnel.write(piece);
    tunnel.end();
    const sent = Buffer.concat([...alone, ...together]);
    assert.ok((await got).equals(sent));
  });

  it("a tunnel reports the server's EOF and then still accepts client data", async () => {
    await using server = await listener((socket) => socket.end("first and last"));
    const tunnel = client.ports.connect(server.port);
    // No async iterator: it would end both directions (as of a net.Socket).
    let got = "";
    tunnel.on("data", (bytes: Buffer) => (got += String(bytes)));
    await once(tunnel, "end");
    assert.equal(got, "first and last");
    const socket = await server.next();
    tunnel.end("still there");
    assert.equal(await text(socket), "still there");
  });

  it("a tunnel closes only after the client's last bytes are delivered", async () => {
    await using server = await listener((socket) => socket.end("its end first"));
    const sent = randomBytes(8 * MIB);
    const tunnel = client.ports.connect(server.port).resume();
    tunnel.end(sent);
    const socket = await server.next();
    await once(tunnel, "end");
    const got = buffer(socket);
    await once(tunnel, "close");
    assert.ok((await got).equals(sent));
  });

  it("a tunnel connects to 127.0.0.1, or else ::1, and to unix sockets", async (t) => {
    const name = (told: string) => (socket: Socket) => void socket.end(told);
    await using v4 = await listener(name("v4"));
    const path = directory.at("server.sock");
    await using unix = await listener(name("unix"), { path });
    assert.equal(await text(client.ports.connect(v4.port).end()), "v4");
    assert.equal(await text(client.ports.connect(path).end()), "unix");
    assert.equal(unix.sockets.length, 1);
    if (!networkInterfaces()["lo"]?.some(({ address }) => isIPv6(address))) {
      t.skip("needs IPv6 on the loopback");
      return;
    }
    await using v6 = await listener(name("v6"), { port: 0, host: "::1", ipv6Only: true });
    assert.equal(await text(client.ports.connect(v6.port).end()), "v6");
  });

  it("if a tunnel cannot open, its `opened` promise rejects without an uncaught error", async () => {
    const uncaught: unknown[] = [];
    const note = (error: unknown): unknown => uncaught.push(error);
    process.on("uncaughtException", note);
    const tunnel = client.ports.connect(directory.at("nowhere"));
    const closed = new Promise((resolve) => tunnel.once("close", resolve));
    await assert.rejects(tunnel.opened, { code: "PATH_NOT_FOUND" });
    await closed;
    process.off("uncaughtException", note);
    assert.deepEqual(uncaught, []);
  });

  it("a tunnel that cannot be opened reports status and reason", async () => {
    await using closed = await listener();
    const { port } = closed;
    await closed[Symbol.asyncDispose]();
    writeFileSync(directory.at("file"), "");
    assert.deepEqual(await reasonFor(port), ["FAILED_PRECONDITION", "PORT_REFUSED"]);
    assert.deepEqual(await reasonFor(directory.at("file")), ["FAILED_PRECONDITION", "PORT_REFUSED"]);
    assert.deepEqual(await reasonFor(directory.at("nothing")), ["NOT_FOUND", "PATH_NOT_FOUND"]);
    for (const target of [0, 65_536, "relative.sock", "", "/with\0nul", `/${"x".repeat(107)}`])
      assert.deepEqual(await reasonFor(target), ["INVALID_ARGUMENT", "INVALID_FIELD"], String(target));
  });

  it("a tunnel to a listener with a full backlog fails with PORT_UNREACHABLE", async () => {
    const path = directory.at("full.sock");
    const script = `require("net").createServer().listen({ path: process.argv[1], backlog: 1 }, () => console.log("listens"))`;
    const stopped = spawn(process.execPath, ["-e", script, path], { stdio: ["ignore", "pipe", "inherit"] });
    const waiting: Socket[] = [];
    try {
      await once(stopped.stdout, "data");
      stopped.kill("SIGSTOP");
      for (let error = ""; error !== "EAGAIN";) {
        const socket = connect(path);
        waiting.push(socket);
        error = await new Promise((resolve) => {
          socket.once("connect", () => resolve(""));
          socket.once("error", ({ code }: NodeJS.ErrnoException) => resolve(code ?? ""));
        });
      }
      assert.deepEqual(await reasonFor(path), ["FAILED_PRECONDITION", "PORT_UNREACHABLE"]);
    } finally {
      for (const socket of waiting) socket.destroy();
      stopped.kill("SIGKILL");
      await once(stopped, "close");
    }
  });

  it("a tunnel to the agent's own port or sockets is rejected", async () => {
    await using own = await startSocketAgent();
    using its = clientOf(own);
    const refused = async (target: number | string): Promise<string> => {
      const { status, message } = await refusal(target, its);
      return `${status} ${message}`;
    };
    assert.match(await refused(own.port), /^INVALID_ARGUMENT port belongs to the agent/);
    for (const path of [own.socketPath, own.workloadSocket]) {
      const names = ["symbolic", "hard"].map((name) => directory.at(`${name}-${path.length}`));
      symlinkSync(path, names[0] ?? "");
      linkSync(path, names[1] ?? "");
      // O_PATH, which node:fs has no name for: a descriptor of the socket's file.
      const fd = openSync(path, 0o10000000 | constants.O_RDONLY);
      for (const name of [path, ...names, `/proc/${process.pid}/fd/${fd}`])
        assert.match(await refused(name), /^INVALID_ARGUMENT path refers to a socket of the agent/, name);
      closeSync(fd);
    }
  });

  it("a tunnel to a bind-mounted agent socket is rejected", NEEDS_NAMESPACES, async () => {
    const place = directory.at("bound");
    writeFileSync(place, "");
    const socket = directory.at("own.sock");
    // Mounted once the agent listens, in its namespace and below its root: these tests may run in a chroot.
    await using own = await startAgent({ env: { SVC_GUEST_SOCKET: socket }, through: inMountNamespace("true") });
    execFileSync("nsenter", ["-t", String(own.pid), "--mount", "--root", "mount", "--bind", socket, place]);
    using its = clientOf(own);
    assert.match((await refusal(place, its)).message, /^path refers to a socket of the agent/);
  });

  it("a tunnel delivers all bytes received before a server's reset, then reports the reset", async () => {
    await using server = await listener((socket) => {
      socket.write("last words");
      socket.once("data", () => socket.resetAndDestroy());
    });
    const tunnel = client.ports.connect(server.port);
    const failed = failure(tunnel);
    let got = "";
    for await (const bytes of tunnel.iterator({ destroyOnReturn: false })) {
      got += String(bytes);
      if (got === "last words") break;
    }
    tunnel.write("now");
    const { status, reason } = await failed;
    assert.deepEqual([got, status, reason], ["last words", "ABORTED", "PORT_RESET"]);
  });

  it("a client in mid-upload receives all data sent before the server's reset", async () => {
    // As an HTTP server that refuses a large upload: it answers, and closes with bytes unread.
    await using server = await listener((socket) => {
      socket.once("data", () => socket.end("too large", () => socket.resetAndDestroy()));
      socket.once("data", () => socket.pause());
    });
    const tunnel = client.ports.connect(server.port);
    let got = "";
    tunnel.on("data", (bytes: Buffer) => (got += String(bytes)));
    const failed = failure(tunnel);
    const send = (): void => void (tunnel.writable && tunnel.write(Buffer.alloc(MIB), () => setImmediate(send)));
    send();
    assert.deepEqual([(await failed).reason, got], ["PORT_RESET", "too large"]);
  });

  it("the server sees a reset, not an EOF, when a tunnel's client disconnects", async () => {
    await using server = await listener((socket) => socket.resume());
    const leaving: ((tunnel: GuestTunnel) => void)[] = [
      (tunnel) => tunnel.destroy(),
      (tunnel) => tunnel[Symbol.dispose](),
      (tunnel) => tunnel.destroy(new Error("the source has failed")),
    ];
    for (const leave of leaving) {
      const tunnel = client.ports.connect(server.port);
      tunnel.on("error", () => {});
      tunnel.write("a part");
      const socket = await server.next();
      const end = new Promise((resolve) => {
        socket.once("end", () => resolve("end"));
        socket.once("error", ({ code }: NodeJS.ErrnoException) => resolve(code));
      });
      leave(tunnel);
      assert.equal(await end, "ECONNRESET");
    }
  });
});
